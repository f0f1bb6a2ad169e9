"""Implements ``photon chaos``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli import tables
from photon.cli.audited import audited
from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import PATH, Deployed, Printed, added, deployed, formatted, run_option
from photon.cli.units import DURATION
from photon.config.errors import UsageError
from photon.config.words import many
from photon.fleet.parts import Column, Part

if TYPE_CHECKING:
    from photon.lab.chaos.api import Step
    from photon.lab.chaos.command import Where
    from photon.lab.chaos.report import Report, Spread
    from photon.lab.chaos.scenario import Scenario

# Faults that can be injected by hand.
FAULTS = ("kill", "pause", "cut", "loss", "delay", "disk", "clock", "away", "restart", "reshard")
HEAL = "heal"
MIB = 1 << 20

config_option = click.option(
    "--config", type=PATH, metavar="FILE",
    help="The deployment file that photon up, or docker-compose, runs.",
)  # fmt: skip
project_option = click.option(
    "--project", metavar="NAME", help="Name of the docker-compose project, if the deployment runs in containers."
)
compose_option = click.option(
    "--compose", type=PATH, metavar="FILE", default=Path("docker-compose.yml"),
    show_default=True, help="With --project: its compose file.",
)  # fmt: skip


def _running(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --config, --run, --project, --compose and -o. The command gets ``at`` (the deployment) and ``where`` (how
    it runs)."""

    @functools.wraps(command)
    def headed(at: Deployed, run: Path | None, project: str | None, compose: Path, **given: Any) -> Any:
        from photon.lab.chaos.command import Where

        return command(at=at, where=Where(at.config, run, project, compose), **given)

    head = deployed(sets=False, help="The deployment file that photon up runs.")(headed)
    return added(head, [run_option, project_option, compose_option])


@click.command("run")
@click.argument("scenario", required=False)
@click.option("--list", "listing", is_flag=True, help="Only list Photon's scenarios.")
@click.option(
    "--random", "drawn", is_flag=True, help="Inject a random fault every 15 s instead of running a scenario."
)
@click.option("--seed", type=int, help="Seed of faults and traffic (default: random, and shown).")
@click.option("--minutes", type=click.FloatRange(min=0.2, max=1440.0), help="Duration; requires --random.")
@click.option("--rate", type=click.IntRange(min=1, max=100_000), help="Events per second (default: the scenario's).")
@config_option
@run_option
@project_option
@compose_option
@click.option("--traffic", type=click.Choice(["own", "existing"]),
              help="With --config: generate traffic or use existing traffic.  [default: existing]")  # fmt: skip
@click.option("--directory", type=PATH, metavar="DIR",
              help="New directory for history, report and, without --config, the deployment.")  # fmt: skip
@click.option("--joiners", type=click.IntRange(1, 16), default=2, show_default=True,
              help="Without --config: number of joiners in each datacentre.")  # fmt: skip
@click.option("--verify", "how", type=click.Choice(["quick", "spark"]), default="quick", show_default=True,
              help="quick: compare outputs and ledgers with the truth; spark: verify on Spark, too.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only show the schedule.")
@formatted
@audited
def run(
    scenario: str | None, listing: bool, drawn: bool, config: Path | None, run: Path | None, project: str | None,
    traffic: str | None, how: str, dry_run: bool, out: Printed, **given: Any,
) -> int:  # fmt: skip
    """Run a scenario of faults, heal them, and verify. Traffic keeps flowing; verification waits until everything is
    settled.

    SCENARIO is a name shown by --list, or a file. Without --config it starts a deployment of its own (five registry
    replicas in three regions 100 ms apart, pipelines in east and west) and stops it afterwards.

    \b
    Examples:
      photon chaos run --list
      photon chaos run two-replicas-down --directory /tmp/chaos
      photon chaos run --random --seed 7 --minutes 3 -o json
      photon chaos run soak --minutes 60 --rate 100
      photon chaos run my-scenario.toml --config photon.toml --dry-run
      photon chaos run --random --minutes 5 --project photon --config deploy/compose/photon.toml
    Exit codes: 0 every event has exactly one verdict; 3 something is wrong; 1 failed; 2 wrong usage.
    """
    from photon.lab.chaos.command import Wishes, as_json, carry_out, planned

    if (scenario is not None) + drawn + listing != 1:
        raise UsageError("give either a SCENARIO or --random; photon chaos run --list shows the scenarios")
    if listing:
        _show_scenarios(out)
        return DONE
    if config is None and (run is not None or traffic is not None or project is not None):
        raise UsageError("--run, --traffic and --project require --config")
    if project is not None and (traffic == "own" or how == "spark"):
        raise UsageError("--project: do not give --traffic: the containers have their own generator")
    wishes = Wishes(
        scenario=scenario, config=config, run=run, project=project, spark=how == "spark",
        own_traffic=traffic == "own" or config is None, **given,
    )  # fmt: skip

    if dry_run:
        found, steps, drawn_seed = planned(wishes)
        _show_plan(out, found, steps, drawn_seed)
        return DONE
    report, kept = carry_out(wishes, tables.say)
    out.show(as_json(report), *tables.facts(_said_of(report)), f"kept in {kept}")
    return DONE if report.good else ATTENTION


@click.command("fault")
@click.argument("do", type=click.Choice([*FAULTS, HEAL]))
@click.argument("targets", nargs=-1)
@_running
@click.option("--for", "lasts", type=DURATION, help="Duration (default: until photon chaos fault heal).")
@click.option("--fault", type=click.Choice(["drop", "reset", "refuse"]),
              help="With cut: drop bytes, reset connections, or refuse new ones.  [default: drop]")  # fmt: skip
@click.option("--one-way", is_flag=True, help="With cut or delay: in one direction only.")
@click.option("--delay", type=DURATION, help="With delay: additional time, one way.")
@click.option("--skew", type=float, help="With clock: seconds to shift the clock by; may be negative.")
@click.option("--shards", type=click.IntRange(1), help="With reshard: number of shards.")
@audited
def fault(
    at: Deployed, where: Where, do: str, targets: tuple[str, ...], lasts: float | None, fault: str | None,
    one_way: bool, delay: float | None, skew: float | None, shards: int | None,
) -> None:  # fmt: skip
    """Inject one fault. TARGETS are processes, regions, a datacentre, or leader; heal undoes all faults.

    Name processes as photon status processes shows them. heal resumes paused processes, starts held ones, lifts cuts
    and delays, and empties disks that were filled.

    \b
    Examples:
      photon chaos fault kill "joiner east-1" --config photon.toml
      photon chaos fault pause leader --for 10s --config photon.toml
      photon chaos fault cut east west --one-way --config photon.toml
      photon chaos fault away west --for 5m --config photon.toml
      photon chaos fault heal --config photon.toml
    """
    from photon.lab.chaos.command import heal_all, one_fault

    both = False if one_way else None
    options = {"fault": fault, "both": both, "delay": delay, "skew": skew, "shards": shards}
    if do != HEAL:
        done = [one_fault(where, do, targets, lasts, options)]
    elif targets or lasts or any(each is not None for each in options.values()):
        raise UsageError("heal undoes all faults: it takes no targets and no options")
    else:
        done = heal_all(where)
    at.show({"done": done}, "\n".join(done))


# -- output of scenarios, plans and reports --------------------------------------------------------------------------
SCENARIOS = (
    Column("scenario", "name"), Column(">seconds", "seconds", "{:g}".format), Column(">events/s", "rate"),
    Column("what happens", "about"),
)  # fmt: skip
PLAN = (
    *(Column(f">{name}", name, lambda at: "-" if at is None else f"{at:.1f} s") for name in ("from", "to")),
    Column("fault"),
)


def _show_scenarios(out: Printed) -> None:
    from photon.lab.chaos.scenario import load, names

    found = [load(name) for name in names()]
    rows = [{"name": s.name, "about": s.about, "seconds": s.seconds, "rate": s.rate} for s in found]
    out.part(Part("", rows, SCENARIOS))


def _show_plan(out: Printed, scenario: Scenario, steps: Sequence[Step], seed: int) -> None:
    whole = {"scenario": scenario.name, "seed": seed, "seconds": scenario.seconds, "rate": scenario.rate}
    rows = [{"from": each.at_s, "to": each.end_s if each.for_s else None, "fault": each.words()} for each in steps]
    line = f"{scenario.name}: {scenario.about}; {scenario.seconds:g} s, {scenario.rate} events/s, seed {seed}"
    out.show({**whole, "plan": [asdict(step) for step in steps]}, line, Part("plan", rows, PLAN))


def _said_of(report: Report) -> Iterator[tuple[str, str]]:
    if report.good:
        good = f"each of {report.events:,} events came out exactly once" if report.events else "no problems"
        yield "verdict", click.style(good, fg="green")
    else:
        yield "verdict", click.style(many(len(report.problems), "problem"), fg="red", bold=True)
    yield from (("", problem) for problem in report.problems)
    yield "verified by", report.verified
    yield "scenario", f"{report.scenario}, seed {report.seed}, {report.faults} faults, {report.seconds:g} s"
    if report.events:
        yield "end to end", _spread(report.latency.overall)
        yield "during faults", _spread(report.latency.during)
        yield "unmatched", _spread(report.latency.unmatched)
        within = report.latency.within.items()
        yield "verdict within", ", ".join(f"{share:.4%} in {limit} s" for limit, share in within)
    for back in report.backs:
        took = "did not catch up" if back.seconds is None else f"caught up in {back.seconds:g} s"
        what = f"away {back.away_s:g} s, {took}, {back.read:,} events read, {back.wasted} joins wasted"
        yield f"back: {back.datacentre}", what
    yield "settled", f"{report.settle_s:g} s after healing; {report.wasted} joins wasted in total"
    yield from _uses(report)
    yield "load average", f"{report.load_before:.1f} before, {report.load_after:.1f} after"
    yield "history", report.history


def _uses(report: Report) -> Iterator[tuple[str, str]]:
    judged = [use for use in report.uses if use.judged]
    if judged and not report.growing:
        most = max(judged, key=lambda use: use.memory_after)
        flat = f"no growth in {len(judged)} processes; largest: {most.name} {most.memory_after / MIB:.0f} MiB"
        yield "memory, files", flat
    for use in report.growing if judged else ():
        memory = f"{use.memory_before / MIB:.0f} to {use.memory_after / MIB:.0f} MiB"
        files = f"{use.files_before} to {use.files_after} files"
        yield "growing", click.style(f"{use.name}: {memory}, {files} in {use.lived_s:.0f} s", fg="yellow")


def _spread(spread: Spread) -> str:
    if not spread.count:
        return "-"
    values = f"p50 {spread.p50_ms:,.0f} ms, p99 {spread.p99_ms:,.0f} ms, max {spread.max_ms:,.0f} ms"
    return f"{values} ({spread.count:,} events)"
