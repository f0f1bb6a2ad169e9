"""``photon doctor``: checks whether a deployment can run, and whether it runs well."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import Deployed, deployed
from photon.cli.looking import Progress
from photon.config.errors import PhotonError, UsageError
from photon.config.words import many
from photon.fleet.parts import Column, Part, picked

if TYPE_CHECKING:
    from photon.fleet.look import Look

FIELDS = "area level where what do"
COLUMNS = (*map(Column, ("area", "level", "where", "what")), Column("what to do", "do"))


@click.command()
@click.argument("part", required=False, type=click.Choice(["config", "registry"]), metavar="[PART]")
@click.option(
    "--datacentre",
    "here",
    multiple=True,
    metavar="NAME",
    help="Datacentre on this machine (default: guessed from addresses and directories).",
)
@deployed(required=False, help="The deployment file; without it, only this machine is checked.")
def doctor(at: Deployed, part: str | None, here: tuple[str, ...]) -> int:
    """Find what is wrong, or soon will be, before a deployment is started or while it runs, and say what to do.

    \b
    Checks configuration and adapters, releases and packages, clocks of all processes, disks and fsync, log
    directories, open files, ports, certificates and key files, the registry, stalled watermarks, tables.
    Parts:
      config    only whether the deployment file and its adapters are valid, and which failures the deployment
      survives
    Examples:
      photon doctor --config photon.toml
      photon doctor --config photon.toml --datacentre east -o json
      photon doctor config --config config/examples/zeek.toml
      photon doctor registry --config photon.toml
    Exit codes: 0 nothing found; 3 a warning or a problem was found (registry: 1); 2 wrong usage or configuration.
    """
    from datetime import UTC, datetime

    from photon.fleet.doctor import Level, findings, worst

    if here and (part or at.given is None):
        raise UsageError("--datacentre requires --config, and cannot be used with a PART")
    if at.given is None and at.overrides:
        raise UsageError("--set requires --config")
    if part == "config":
        from photon.cli.config import check

        return check(at)
    if part == "registry":
        from photon.cli.registry.status import findings_of

        return findings_of(at)
    if at.given is not None and not at.given.exists():
        raise UsageError(f"{at.given}: no such file; give the deployment file")
    progress = Progress(passing=True)
    look = _look(at, here, lambda what: progress.tell(f"looking at {what} …"))
    said = findings(str(at.given or "-"), look, datetime.now(UTC))
    progress.end()
    assert look.here is not None
    named, counts = look.here.datacentres, Counter(each.level for each in said)
    lines = [f"{many(counts[Level.PROBLEM], 'problem')}, {many(counts[Level.WARNING], 'warning')}"]
    lines += [f"on this machine: {', '.join(named)}"] if named else []
    more = {"level": worst(said), "file": str(at.given or "-"), "here": named, "running": look.running}
    at.part(Part("findings", [picked(each, FIELDS) for each in said], COLUMNS), *lines, **more)
    return DONE if worst(said) is Level.OK else ATTENTION


def _look(at: Deployed, here: tuple[str, ...], tell: Callable[[str], None]) -> Look:
    """Runs all possible checks; if the file has a mistake, only the checks of this machine."""
    from photon.fleet.here import Here, machine
    from photon.fleet.look import Look, whole

    tell("this machine")
    if at.given is None:
        return Look(time.time(), here=Here(machine()))
    try:
        settings = at.settings
    except PhotonError as error:
        return Look(time.time(), here=Here(machine(), mistakes=[str(error)]))
    unknown = [name for name in here if name not in settings.datacentre]
    if unknown:
        known = ", ".join(sorted(settings.datacentre)) or "none"
        raise UsageError(f"--datacentre {unknown[0]}: not in the configuration; there are: {known}")
    return whole(settings, at.base, here, tell)
