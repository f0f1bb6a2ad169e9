"""``photon doctor``: checks if a deployment can run and runs well."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import Deployed, deployed
from photon.cli.tables import Column, Part, picked
from photon.config.errors import PhotonError, UsageError
from photon.config.words import many

if TYPE_CHECKING:
    from photon.config.settings import Settings
    from photon.fleet.doctor.checks import Finding
    from photon.fleet.doctor.facts import Facts

FIELDS = "area level where what do"
COLUMNS = (*map(Column, ("area", "level", "where", "what")), Column("what to do", "do"))
UNCERTAINTY_S = 5.0
"""clock.uncertainty if no file sets it."""


@click.command()
@click.argument("part", required=False, type=click.Choice(["config", "registry"]), metavar="[PART]")
@click.option("--datacentre", "here", multiple=True, metavar="NAME",
              help="It is on this machine; default: judged by addresses and directories.")  # fmt: skip
@deployed(required=False, help="The deployment file; without it only this machine.")
def doctor(at: Deployed, part: str | None, here: tuple[str, ...]) -> int:
    """Find what is wrong, or soon will be, before a deployment is started or while it runs, and say what to do.

    \b
    Checks configuration and adapters, releases and packages, clocks of all processes, disks and fsync, log
    directories, open files, ports, certificates and key files, the registry, watermarks that stand still, tables.
    Parts:
      config    only whether the deployment file and each adapter that it names are good, and what it survives
      registry  only the registry: silent replicas, groups without a leader, replicas far behind, memberships that
                differ, clocks, disk space, alarms, closed shards, certificates that expire
    Examples:
      photon doctor --config photon.toml
      photon doctor --config photon.toml --datacentre east -o json
      photon doctor config --config config/examples/zeek.toml
      photon doctor registry --config photon.toml
    Exit codes: 0 nothing found, 3 a warning or a problem was found (registry: 1), 2 wrong usage or configuration.
    """
    from datetime import UTC, datetime

    from photon.fleet.doctor.checks import Level, findings

    if here and (part or at.given is None):
        raise UsageError("--datacentre goes with --config, and with no PART")
    if at.given is None and at.overrides:
        raise UsageError("--set goes with --config")
    if part == "config":
        from photon.cli.config import check

        return check(at)
    if part == "registry":
        from photon.cli.registry.status import findings_of

        return findings_of(at)
    if at.given is not None and not at.given.exists():
        raise UsageError(f"{at.given}: no such file; name the deployment file")
    facts = _facts(at, here)
    said = findings(facts, datetime.now(UTC))
    at.show(_as_json(facts, said), lambda: _show(facts, said))
    return DONE if all(each.level is Level.OK for each in said) else ATTENTION


def _facts(at: Deployed, here: tuple[str, ...]) -> Facts:
    """Gathers all facts it can: with a mistake in the file, only those of this machine."""
    from photon.fleet.doctor.facts import Facts
    from photon.fleet.doctor.gathering import machine

    _tell("this machine")
    own = machine()
    if at.given is None:
        return Facts("-", own, UNCERTAINTY_S, (), loaded=False)
    try:
        settings = at.settings
    except PhotonError as error:
        return Facts(str(at.given), own, UNCERTAINTY_S, (), mistakes=[str(error)], loaded=False)
    unknown = [name for name in here if name not in settings.datacentre]
    if unknown:
        known = ", ".join(sorted(settings.datacentre)) or "none"
        raise UsageError(f"--datacentre {unknown[0]}: not in the configuration; there are: {known}")
    return _of_deployment(at.config, settings, own, here)


def _of_deployment(config: Path, settings: Settings, own: Any, named: tuple[str, ...]) -> Facts:
    from photon.fleet.doctor import gathering
    from photon.fleet.doctor.facts import Facts, Registry
    from photon.fleet.processes import listening, survives

    base, now = config.parent, gathering.now_utc()
    here = list(named) or gathering.datacentres_here(settings, base)
    mistakes = [*gathering.adapter_mistakes(settings, base), *gathering.topology_mistakes(settings, base)]
    tls, unasked = gathering.operators_tls(settings, base)
    _tell("processes")
    processes = [] if unasked else gathering.processes(settings, tls, base)
    _tell("registry")
    registry = Registry() if unasked else gathering.registry(settings, tls, time.time_ns())
    _tell("disks, logs, ports, tables")
    ours = [each.address for each in processes if not each.problem]
    return Facts(
        str(config), own, settings.clock.uncertainty, here, gathering.one_machine(settings), mistakes, True, unasked,
        sorted(settings.join),        survives(settings) if settings.registry.replicas else [],
        gathering.directories(settings, base, here), gathering.logs(settings, base, here),
        gathering.ports(listening(settings), ours), processes,
        settings.tls is not None, gathering.pairs(settings, base, now), gathering.secret(settings, base),
        gathering.states(settings, base, here), registry,
        [] if unasked else gathering.watermarks(settings, base, tls, time.time_ns()),
        gathering.tables(settings, base), gathering.output_ranges(settings, base, here),
    )  # fmt: skip


def _tell(what: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[Klooking at {what} …")
        sys.stderr.flush()


def _show(facts: Facts, said: list[Finding]) -> None:
    from photon.fleet.doctor.checks import Level

    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    Part("findings", [picked(each, FIELDS) for each in said], COLUMNS).show()
    counts = {level: sum(each.level is level for each in said) for level in (Level.PROBLEM, Level.WARNING)}
    click.echo(f"{many(counts[Level.PROBLEM], 'problem')}, {many(counts[Level.WARNING], 'warning')}")
    if facts.here:
        click.echo(f"on this machine: {', '.join(facts.here)}")


def _as_json(facts: Facts, said: list[Finding]) -> dict[str, Any]:
    from photon.fleet.doctor.checks import worst

    found = [picked(each, FIELDS) for each in said]
    return {"level": worst(said), **picked(facts, "file here running"), "findings": found}
