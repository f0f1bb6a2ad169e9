"""The lasting state of a one-machine join, ``OUTPUT/.photon``, which the running command locks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from photon.adapters.contract import Adapter
from photon.adapters.log_places import check_links_apart, check_logs_apart, secrets_of
from photon.config.disk import Disk
from photon.config.errors import PhotonError, UsageError
from photon.config.settings import Duration, JoinerSettings, Pipeline, Replica, Settings
from photon.joiner.slot.identity import OutOfStep, SlotRefused
from photon.joiner.slot.lock import SlotLock
from photon.joiner.slot.output import SlotLog
from photon.joiner.slot.recovery import check_never_opened
from photon.joiner.slot.slot import STATE_NAME, SlotPaths
from photon.local_join.given import Given

KEY_BYTES = 32
LOCK_WAIT_S = 3.0  # how long to wait for a predecessor that was just killed
OWN_DIRECTORIES = (".photon", "joined", "filtered", "unmatched", "rejected", "late")
SLOT = "local-1"
DATACENTRE = "local"


class SiteBusy(PhotonError):
    """Raised if another process uses this output."""


@dataclass(frozen=True, slots=True)
class Site:
    output: Path

    @property
    def state(self) -> Path:
        """The directory of Photon's own files."""
        return self.output / ".photon"

    @property
    def slot(self) -> SlotPaths:
        return SlotPaths(self.state / "slots" / SLOT, self.output)

    @property
    def file_map(self) -> Path:
        return self.state / "eventstore"

    def upstream(self, side: str) -> Path:
        """Returns the directory into which a side's topic or upstream output is copied."""
        return self.state / "upstream" / side

    def registry(self, replica: str) -> Path:
        return self.state / "registry" / replica

    def spool(self, side: str) -> Path:
        """Returns the directory in which standard input is kept, so that records can be looked up and verified
        later."""
        return self.state / "stdin" / side

    def check_logs(self, side: str, path: Path, logs: Given) -> None:
        """Refuses logs that are inside the output or state, and an output inside the logs, where it would be read as
        a log. ``path``: as given by the user.

        Raises UsageError.
        """
        real, output = logs.directory.resolve(), self.output.resolve()
        if logs.may_hold(output):
            raise UsageError(
                f"--output {self.output}: is inside --{side} {path}, where it would be read as a log; "
                "choose a directory outside"
            )
        if any(real.is_relative_to(output / own) for own in OWN_DIRECTORIES):
            raise UsageError(
                f"--{side} {path}: is inside the files written by --output {self.output}; choose another output"
            )

    def settings(self, settings: Settings, join: str, sides: Mapping[str, Path]) -> Settings:
        """Returns the settings of a deployment with a single datacentre in one process, for this output."""
        here = Pipeline(
            join=join, primary=str(sides["primary"]), foreign=str(sides["foreign"]),
            output=str(self.output), state=str(self.state), status="",
        )  # fmt: skip
        return structs.replace(
            settings,
            datacentre={DATACENTRE: here},
            registry=structs.replace(
                settings.registry, replicas={"local": Replica(address="", together=True, datacentre=DATACENTRE)}
            ),
            output=structs.replace(settings.output, copies=1),
            joiner=JoinerSettings(adopt_after=Duration(0.0)),
            tls=None,
            key_file=str(self.state / "key"),
        )

    def check_links(
        self, settings: Settings, base: Path, name: str, adapter: Adapter, sides: Mapping[str, Path]
    ) -> None:
        """Refuses logs and links that lead to keys or certificates, and links to files written here.

        Raises AdapterError.
        """
        join, secrets = settings.join[name], secrets_of(settings, base)
        links = [*adapter.primary_links, *adapter.foreign_links]
        check_links_apart(f"join.{name}", links, {**secrets, "--output": self.output})
        for side, files in (("primary", join.primary_files), ("foreign", join.foreign_files)):
            check_logs_apart(f"--{side}", sides[side], files, secrets)

    def check_state(self, disk: Disk) -> None:
        """Raises OutOfStep if the output has records but no state. Call it before any file is created."""
        if self.output.is_dir() and not disk.exists(self.slot.state / STATE_NAME):
            check_never_opened(SlotLog(disk, self.output, self.slot.state, SLOT))

    def take(self) -> SlotLock:
        """Locks the output for this process. Raises SiteBusy, UsageError."""
        if self.output.exists() and not self.output.is_dir():
            raise UsageError(f"{self.output}: is not a directory; choose a directory for the output")
        try:
            self.state.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{self.output}: cannot be created ({error.strerror}); choose a writable one") from None
        lock = SlotLock(self.state)
        try:
            lock.take(wait_s=LOCK_WAIT_S)
        except SlotRefused as error:
            raise SiteBusy(f"{self.output}: in use by another photon process; stop it, or choose another output "
                           f"({error})") from None  # fmt: skip
        except PermissionError as error:
            raise UsageError(f"{self.state}: {error.strerror}; choose a directory that you may write") from None
        return lock

    def begun(self, disk: Disk) -> bool:
        """Returns True if ids have been registered here; from then on, the way to derive them cannot change."""
        return disk.exists(self.registry(""))

    def key(self, disk: Disk, draw: Callable[[int], bytes] = os.urandom) -> bytes:
        """Reads the deployment's key; creates a random one at the first start. With another key, everything would be
        joined again."""
        path = self.state / "key"
        if not disk.exists(path):
            if self.begun(disk):
                raise PhotonError(
                    f"{path}: is missing, so joined events cannot be recognised; restore it from a copy"
                )
            others = os.umask(0o077)
            try:
                disk.replace(path, draw(KEY_BYTES))
            finally:
                os.umask(others)
        key = disk.read(path)
        if len(key) != KEY_BYTES:
            raise PhotonError(f"{path}: is damaged ({len(key)} of {KEY_BYTES} bytes); restore it from a copy")
        return key


def refused(site: Site, other: OutOfStep) -> UsageError:
    """Returns the user's error for a state and an output that are from different times."""
    return UsageError(
        f"{other.reason}. Nothing was changed. Restore the newest {site.state} and its output, both from one "
        "moment; if that is impossible, choose another --output: everything is joined again there, so do not also "
        f"count the records in {site.output}"
    )
