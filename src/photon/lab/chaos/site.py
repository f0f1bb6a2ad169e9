"""The deployment that a run makes for itself: five registry replicas in three regions; pipelines in east and west."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from photon.config.errors import UsageError
from photon.config.settings import Settings
from photon.lab.chaos import disks
from photon.lab.demo.deployment import DemoDeployment, Place, Shape, places
from photon.supervision.detached import start_detached, stop_detached
from photon.supervision.supervisor import ServiceFailed

REPLICAS = {"r1": "east", "r2": "east", "r3": "west", "r4": "west", "r5": "central"}
ROUND_TRIP_S = 0.1
UP_S = 240.0
DOWN_S = 60.0
# A cache size that fills within minutes, so that a soak can distinguish growth from a filling cache.
CACHE = "16MiB"
TRIES = 3  # another process may take a port between drawing it and the start


@dataclass(frozen=True, slots=True)
class Wanted:
    joiners: int = 2  # joiners in each datacentre
    together: bool = False  # one process a datacentre
    round_trip_s: float = ROUND_TRIP_S
    unmatched_after_s: float = 6.0
    disks: tuple[str, ...] = ()  # replicas whose directory is a small file system of its own
    replicas: dict[str, str] = field(default_factory=lambda: dict(REPLICAS))


@dataclass(frozen=True, slots=True)
class Site:
    file: Path
    settings: Settings
    run: Path

    def places(self) -> dict[str, Place]:
        return places(self.settings, self.file.parent)


@contextlib.contextmanager
def running(directory: Path, wanted: Wanted, say: Callable[[str], None]) -> Iterator[Site]:
    """Makes a deployment in a new directory, and runs it until the context ends. Raises PhotonError."""
    site = made(directory, wanted)
    with contextlib.ExitStack() as stack:
        for name in wanted.disks:
            small = directory / site.settings.registry.replicas[name].directory
            disks.mount_small(small)
            stack.callback(disks.unmount, small)
            say(f"{small} is a small file system during this run; if the run is killed, unmount it: umount {small}")
        stack.enter_context(up(site, say))
        yield site


def made(directory: Path, wanted: Wanted) -> Site:
    """Creates a deployment in a new directory without starting it. Raises PhotonError."""
    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory}: is not empty; name an empty or new directory")
    directory.mkdir(parents=True, exist_ok=True)
    shape = Shape(
        joiners=wanted.joiners,
        together=wanted.together,
        round_trip_s=wanted.round_trip_s,
        unmatched_after_s=wanted.unmatched_after_s,
        replicas=wanted.replicas,
        cache=CACHE,
    )
    demo = DemoDeployment(directory, shape).deployment
    return Site(demo.file, demo.settings, demo.run)


@contextlib.contextmanager
def up(site: Site, say: Callable[[str], None]) -> Iterator[None]:
    """Runs the deployment until the context ends. Raises PhotonError."""
    with contextlib.ExitStack() as stack:
        stack.callback(stop_detached, site.run, DOWN_S)
        arguments = ["up", str(site.file), "--run", str(site.run), "--unhealthy-after", "30", "--background"]
        states = start_detached(site.run, arguments, UP_S, say)
        if not states:
            raise ServiceFailed(f"{site.file}: none of its processes is running")
        say(f"all {len(states)} processes are up")
        yield
