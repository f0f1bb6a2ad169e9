"""The deployment on which the runbooks are carried out, and checks that each event still comes out exactly once."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson

import photon
from photon.config.disk import RealDisk
from photon.config.loader import load
from photon.config.settings import Settings
from photon.outputs import OutputPlace, Reader
from photon.outputs.output_places import COPIES_NAME
from photon.supervision.control import NobodyListens, Request, ask
from photon.supervision.ports import free_ports
from photon.supervision.states import ServiceState
from tests.integration.commands import Detached, until
from tests.integration.operations.runbook import Happens, Run
from tests.integration.operations.shell import Shell
from tests.integration.operations.traffic import Traffic

EXAMPLE = Path(__file__).parents[2] / "unit" / "supervision" / "two_apart.toml"
SHIPPED = Path(__file__).parents[3] / "config" / "examples" / "two_datacentres.toml"
DATACENTRES = ("east", "west")
KINDS = ("joined", "unmatched")
WAIT_S = 200.0  # much more than needed on a quiet machine
FULL = bool(os.environ.get("PHOTON_FULL"))
# The shipped example: one process a datacentre, without copies. The other kinds have each part apart.
TOGETHER = "together"
WITH_COPIES, WITHOUT_COPIES = "with copies", "without copies"
WITH_WAN = "with wan"  # the plain example, with its proxy between regions and without TLS
COPIES = """
[output]
copies = 2
copies_wait = "2s"
"""


class Site(Detached):
    """The example of two datacentres over TLS on free ports; not started. ``kind``: whether each datacentre's output
    is also kept in the other one."""

    def __init__(self, directory: Path, seed: int, kind: str = WITHOUT_COPIES) -> None:
        self.kind = kind
        self.directory = directory / "deployment"
        self.directory.mkdir()
        super().__init__(self.directory / "photon.toml")
        self.file.write_text(_deployment_file(kind))
        for datacentre in DATACENTRES:
            for logs in ("queries", "clicks"):
                (self.directory / datacentre / logs).mkdir(parents=True)
        self.releases = Releases(directory)
        # Only the long rounds install another one.
        self.shell = Shell(self.directory, {"PYTHONPATH": str(self.releases.current)} if FULL else {})
        self.traffic = Traffic(self.directory, DATACENTRES, seed)
        self.readers = Readers(self.directory, self.settings)
        self.broken = False

    @property
    def settings(self) -> Settings:
        return load(self.file, environment={})

    # -- runbooks --------------------------------------------------------------------------------------------------
    def carry_out(self, name: str, steps: list[Run | Happens], events: Mapping[str, Callable[[Site], None]]) -> None:
        """All steps in order; afterwards everything written meanwhile has come out, each event once."""
        self.broken = True
        for step in steps:
            if isinstance(step, Happens):
                print(f"--- {name}:{step.line}: {step.what}")
                events[step.what](self)
            elif step.only in ("", self.kind):
                self.shell.run(name, step)
            self.traffic.check()
            self.note_pids()
        self.comes_out()
        self.broken = False

    def comes_out(self) -> None:
        """All events written by now with their query are joined and published, once."""
        wanted = self.traffic.joined()

        def all_there() -> bool:
            self.readers.follow()
            return wanted.keys() <= self.readers.joined.keys()

        try:
            until(all_there, WAIT_S, "all that was written comes out")
        except AssertionError:
            left = sorted(wanted.keys() - self.readers.joined.keys())
            raise AssertionError(f"{len(left)} of {len(wanted)} events have not come out: {left[:5]}") from None
        self.readers.check(self.traffic)
        print(f"{len(wanted):,} events have come out, each once")

    def ends(self) -> None:
        """Traffic stops; in the end each event has come out exactly once, unmatched ones too."""
        self.traffic.stop()
        expected = self.traffic.joined().keys() | self.traffic.unmatched()

        def settled() -> bool:
            self.readers.follow()
            return expected <= self.readers.joined.keys() | self.readers.unmatched.keys()

        until(settled, WAIT_S, "all events have their verdict")
        self.readers.check(self.traffic)
        assert self.readers.unmatched.keys() == self.traffic.unmatched()
        print(f"{len(expected):,} events in all, each once")

    # -- processes -------------------------------------------------------------------------------------------------
    def ask(self, request: Request) -> dict[str, ServiceState]:
        """Sends a request to photon up; returns its processes."""
        return {each.name: each for each in ask(self.directory / ".photon-run", request).services}

    def note_pids(self) -> None:
        """Used at the end to check that all have ended."""
        with contextlib.suppress(NobodyListens):
            reply = ask(self.directory / ".photon-run", Request(do="ps"))
            self.pids |= {reply.pid, *(each.pid for each in reply.services if each.pid)}

    def process(self, part: str) -> str:
        """The process that runs a part, as ``joiner east-1``."""
        datacentre = part.split()[1].partition("-")[0]
        return part if part in self.ask(Request(do="ps")) else f"datacentre {datacentre}"

    def lose(self, *names: str, datacentre: str | None = None) -> None:
        """kill -9, and they stay down."""
        chosen = {n for n, s in self.ask(Request(do="ps")).items() if n in names or s.datacentre == datacentre}
        self.ask(Request(do="kill", names=tuple(chosen), hold=True))
        until(
            lambda: all(self.ask(Request(do="ps"))[name].state == "held" for name in chosen), WAIT_S, "they are down"
        )

    def close(self) -> None:
        self.note_pids()
        with contextlib.suppress(AssertionError):
            self.traffic.stop()
        self.down()


class Releases:
    """``current`` points to the installed release, which processes import when they start."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.current = directory / "installed"
        self.current.symlink_to(Path(photon.__path__[0]).parent)

    def install_next(self) -> None:
        """The same code under another version."""
        made = self._directory / "release-next" / "photon"
        ignored = shutil.ignore_patterns("*.tmp", "*.new")
        shutil.copytree(
            Path(photon.__path__[0]), made, ignore=ignored
        )  # links are followed; compiled files stay good
        file = made / "__init__.py"
        file.write_text(file.read_text().replace(f'__version__ = "{photon.__version__}"', '__version__ = "99.0.0"'))
        new = self._directory / "installed.new"
        new.symlink_to(made.parent)
        new.replace(self.current)


class Readers:
    """One reader of each datacentre's output, which always continues from its last place."""

    def __init__(self, base: Path, settings: Settings) -> None:
        self._readers = {
            name: Reader(RealDisk(), _output(base, settings, name), KINDS) for name in settings.datacentre
        }
        self.joined: Counter[str] = Counter()
        self.unmatched: Counter[str] = Counter()
        self.may_be_twice: set[str] = set()  # events given up with a slot that was completely lost
        self._joined_with: dict[str, tuple[bytes, str]] = {}

    def leave(self, datacentre: str) -> None:
        """Its output is permanently gone."""
        del self._readers[datacentre]

    def follow(self) -> None:
        """Reads newly published records."""
        for reader in self._readers.values():
            for block in reader.read():
                for line in block.data.splitlines():
                    self._take(block.place.kind, orjson.loads(line))

    def _take(self, kind: str, record: dict[str, object]) -> None:
        click = str(record["event_id"])
        if kind == "unmatched":
            self.unmatched[click] += 1
            return
        self.joined[click] += 1
        primary = record["primary"]
        assert isinstance(primary, dict)
        self._joined_with[click] = (orjson.dumps(record["foreign"]), str(primary["query_id"]))

    def check(self, traffic: Traffic) -> None:
        """Nothing twice, nothing invented, nothing joined wrongly."""
        twice = [
            click
            for click, times in (self.joined + self.unmatched).items()
            if times > 1 + (click in self.may_be_twice)
        ]
        assert not twice, f"{len(twice)} events came out twice: {sorted(twice)[:5]}"
        truth, unmatched = traffic.truth(), traffic.unmatched()
        invented = (self.joined.keys() - truth.keys()) | (self.unmatched.keys() - unmatched)
        assert not invented, f"{len(invented)} events came out that must not: {sorted(invented)[:5]}"
        wrong = [
            click
            for click, (foreign, query) in self._joined_with.items()
            if (foreign, query) != (orjson.dumps(orjson.loads(truth[click][0])), truth[click][1])
        ]
        assert not wrong, f"{len(wrong)} events are joined wrongly: {sorted(wrong)[:5]}"


def _output(base: Path, settings: Settings, datacentre: str) -> OutputPlace:
    """As ``photon read`` finds it, including the copies in other datacentres."""
    pipeline = settings.datacentre[datacentre]
    kept = tuple(base / each.state / COPIES_NAME / datacentre for each in settings.datacentre.values())
    return OutputPlace(base / pipeline.output, base / pipeline.state, kept)


def _deployment_file(kind: str) -> str:
    """The example with TLS instead of the proxy between regions, one joiner in each and a status page in one, on free
    ports."""
    text = (SHIPPED if kind == TOGETHER else EXAMPLE).read_text()
    if kind != WITH_WAN:
        text = re.sub(r"^\[wan\].*?\n\n", '[tls]\ndirectory = "certs"\n\n', text, flags=re.M | re.S)
    text = text.replace('unmatched_after = "1h"', 'unmatched_after = "6s"\nidentical_copies = true')
    text = text.replace("joiners = 2\n", "")  # few cores run all of it
    text = re.sub(r'apart.joiner = \["(.*)", ".*"\]', r'apart.joiner = "\1"', text)
    if kind != TOGETHER:
        text = text.replace("[datacentre.east]\n", '[datacentre.east]\napart.status = "127.0.0.1:7516"\n')
    if kind == WITH_COPIES:
        for number, name in enumerate(DATACENTRES, 1):
            text = text.replace(
                f"[datacentre.{name}]\n", f'[datacentre.{name}]\napart.copies = "127.0.0.1:75{number}7"\n'
            )
        text = text.replace("[registry]\n", f"{COPIES.lstrip()}\n[registry]\n")
    return on_free_ports(text)


def on_free_ports(text: str) -> str:
    """Draws all at once, so that none is drawn twice."""
    address = re.compile(r'"127\.0\.0\.1:(\d+)"')
    ports = sorted(set(address.findall(text)))
    free = dict(zip(ports, free_ports(len(ports)), strict=True))
    return address.sub(lambda found: f'"127.0.0.1:{free[found[1]]}"', text)
