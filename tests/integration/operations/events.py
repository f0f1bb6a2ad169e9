"""Events that happen to a deployment during a runbook, by the runbook's words for them."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable

from photon.supervision.control import Request
from tests.integration.commands import photon as command
from tests.integration.operations.site import WITH_COPIES, Site

SOME_SECONDS = 2.0


def _new_release(site: Site) -> None:
    site.releases.install_next()


def _runs_the_new_release(site: Site) -> None:
    shown = command("status", "members", "--config", site.file, "-o", "json")
    assert {each["version"] for each in json.loads(shown.out)["members"]} == {"99.0.0"}, shown


def _some_seconds(site: Site) -> None:
    """Some seconds in which more is joined, on purpose."""
    time.sleep(SOME_SECONDS)
    site.comes_out()


def _outage(site: Site) -> None:
    """The lost datacentre's registered and unpublished events stay away meanwhile."""
    time.sleep(SOME_SECONDS)


def _replica_lost(site: Site) -> None:
    site.lose("registry r3")
    shutil.rmtree(site.directory / site.settings.registry.replicas["r3"].directory)
    site.ask(Request(do="release", names=("registry r3",)))  # its supervisor knows nothing about it


def _registry_lost(site: Site) -> None:
    replicas = site.settings.registry.replicas
    site.lose(*(f"registry {name}" for name in replicas))
    for replica in replicas.values():
        shutil.rmtree(site.directory / replica.directory)


def _all_were_due(site: Site) -> None:
    shown = command("certs", "for", site.file, "--force")
    assert shown.code == 0, shown.err


def _west_lost(site: Site) -> None:
    site.traffic.hold("west")
    site.lose(datacentre="west")


def _west_returns(site: Site) -> None:
    site.traffic.go_on("west")


def _west_gone(site: Site) -> None:
    """West is gone with everything there. Without copies its readers had read all published records; with copies they
    were anywhere."""
    site.lose(datacentre="west")
    if site.kind != WITH_COPIES:
        site.readers.follow()
        site.readers.leave("west")
    site.traffic.leave("west")
    west = site.settings.datacentre["west"]
    for lost in (
        west.state,
        west.output,
        west.primary,
        west.foreign,
        site.settings.registry.replicas["r2"].directory,
    ):
        shutil.rmtree(site.directory / lost)


def _given_up(site: Site) -> None:
    """Their records were in the part that west's readers had read."""
    for path in site.directory.rglob("*given-up.jsonl"):  # in the slot's state, where a reload has made its directory
        listed = [json.loads(line) for line in path.read_text().splitlines()[1:]]
        site.readers.may_be_twice |= {each["event_id"] for each in listed}
    print(f"{len(site.readers.may_be_twice)} ids were given up")


def _dispatcher_lost(site: Site) -> None:
    site.lose(site.process("dispatcher west"))
    state = site.directory / site.settings.datacentre["west"].state
    for file in state.glob("dispatcher*"):
        file.unlink()


def _file_map_lost(site: Site) -> None:
    site.lose(process := site.process("eventstore east"))
    shutil.rmtree(site.directory / site.settings.datacentre["east"].state / "eventstore")
    site.ask(Request(do="release", names=(process,)))


def _slot_lost(site: Site) -> None:
    site.lose(process := site.process("joiner east-1"))
    shutil.rmtree(site.directory / site.settings.datacentre["east"].state / "slots" / "east-1")
    site.ask(Request(do="release", names=(process,)))


EVENTS: dict[str, Callable[[Site], None]] = {
    "the new release is installed": _new_release,
    "each replica runs the new release": _runs_the_new_release,
    "some seconds pass": _some_seconds,
    "the outage lasts": _outage,
    "the disk of replica r3 is lost": _replica_lost,
    "the disks of all replicas are lost": _registry_lost,
    "all certificates were due": _all_were_due,
    "datacentre west is lost": _west_lost,
    "the machines of west are there again": _west_returns,
    "datacentre west is lost with its disks": _west_gone,
    "the ids that were given up may be read twice": _given_up,
    "the state of the dispatcher of west is lost": _dispatcher_lost,
    "the file map of east is lost": _file_map_lost,
    "the disk with the slot east-1 is lost": _slot_lost,
}
