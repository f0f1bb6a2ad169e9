"""``photon chaos``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.audited import audited
from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import PATH, Deployed, Printed, added, deployed, formatted, run_option
from photon.cli.tables import print_table
from photon.cli.units import DURATION

if TYPE_CHECKING:
    from photon.lab.chaos.command import Where

FAULTS = ("kill", "pause", "cut", "loss", "delay", "disk", "clock", "away", "restart", "reshard")
"""Faults that can be injected by hand."""

config_option = click.option(
    "--config", type=PATH, metavar="FILE",
    help="The deployment file that photon up, or docker-compose, runs.",
)  # fmt: skip
project_option = click.option(
    "--project", metavar="NAME", help="Containers: the project of docker-compose in which the deployment file runs."
)
compose_option = click.option(
    "--compose", type=PATH, metavar="FILE", default=Path("docker-compose.yml"),
    show_default=True, help="With --project.",
)  # fmt: skip


def _running(command: Callable[..., Any]) -> Callable[..., Any]:
    """--config, --run, --project, --compose, -o: the command gets ``at``, and ``where`` the deployment runs."""

    @functools.wraps(command)
    def headed(at: Deployed, run: Path | None, project: str | None, compose: Path, **given: Any) -> Any:
        from photon.lab.chaos.command import Where

        return command(at=at, where=Where(at.config, run, project, compose), **given)

    head = deployed(sets=False, help="The deployment file that photon up runs.")(headed)
    return added(head, [run_option, project_option, compose_option])


@click.command("list")
@formatted
def list_(out: Printed) -> None:
    """Show the scenarios that come with Photon.

    \b
    Example:
      photon chaos list
    """
    from photon.lab.chaos.scenario import load, names

    found = [load(name) for name in names()]
    rows = [{"name": s.name, "about": s.about, "seconds": s.seconds, "rate": s.rate} for s in found]
    cells = [[each.name, f"{each.seconds:g}", str(each.rate), each.about] for each in found]
    out.show(rows, lambda: print_table("scenario, >seconds, >events/s, what happens", cells))


@click.command("run")
@click.argument("scenario", required=False)
@click.option("--random", "drawn", is_flag=True, help="Random faults instead of a scenario: a new one every 15 s.")
@click.option("--seed", type=int, help="Seed of faults and traffic; default: drawn and shown.")
@click.option("--minutes", type=click.FloatRange(min=0.2, max=1440.0), help="How long; only with random faults.")
@click.option("--rate", type=click.IntRange(min=1, max=100_000), help="Events a second; default: the scenario's.")
@config_option
@run_option
@project_option
@compose_option
@click.option("--traffic", type=click.Choice(["own", "existing"]),
              help="With --config: write own lines, or use what arrives.  [default: existing]")  # fmt: skip
@click.option("--directory", type=PATH, metavar="DIR",
              help="New directory for the history, the report and, without --config, the deployment.")  # fmt: skip
@click.option("--joiners", type=click.IntRange(1, 16), default=2, show_default=True,
              help="Without --config: joiners in each datacentre.")  # fmt: skip
@click.option("--verify", "how", type=click.Choice(["quick", "spark"]), default="quick", show_default=True,
              help="quick: outputs and ledgers against the truth; spark: photon spark verify too.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only show what would happen when.")
@formatted
@audited
def run(
    scenario: str | None,
    drawn: bool,
    seed: int | None,
    minutes: float | None,
    rate: int | None,
    config: Path | None,
    run: Path | None,
    project: str | None,
    compose: Path,
    traffic: str | None,
    directory: Path | None,
    joiners: int,
    how: str,
    dry_run: bool,
    out: Printed,
) -> int:
    """Run a scenario: traffic, faults, heal, wait until all is settled, verify.

    SCENARIO is a name from photon chaos list or a file. Without --config it makes a deployment of its own (five
    registry replicas in three regions 100 ms apart, pipelines in east and west) and ends it afterwards.

    \b
    Examples:
      photon chaos run two-replicas-down --directory /tmp/chaos
      photon chaos run --random --seed 7 --minutes 3 -o json
      photon chaos run soak --minutes 60 --rate 100
      photon chaos run my-scenario.toml --config photon.toml --dry-run
      photon chaos run --random --minutes 5 --project photon --config deploy/compose/photon.toml
    Exit codes: 0 every event has exactly one verdict, 3 something is wrong, 1 failed, 2 wrong usage.
    """
    from photon.config.errors import UsageError
    from photon.lab.chaos.command import Wishes, carry_out, planned

    if (scenario is None) != drawn:
        raise UsageError("name a SCENARIO or say --random, one of them; photon chaos list shows the scenarios")
    if config is None and (run is not None or traffic is not None or project is not None):
        raise UsageError("--run, --traffic and --project go with --config")
    if project is not None and (traffic == "own" or how == "spark"):
        raise UsageError("--project: containers have a generator of their own and are verified against its truth")
    wishes = Wishes(
        scenario, seed, minutes, rate, config, run, traffic == "own" or config is None, directory,
        joiners, how == "spark", project, compose,
    )  # fmt: skip
    from photon.cli import chaos_view

    if dry_run:
        found, steps, drawn_seed = planned(wishes)
        chaos_view.show_plan(out, found, steps, drawn_seed)
        return DONE
    report, kept = carry_out(wishes, lambda line: click.echo(f"photon: {line}", err=True))
    chaos_view.show_report(out, report, kept)
    return DONE if report.good else ATTENTION


@click.command("fault")
@click.argument("do", type=click.Choice(FAULTS))
@click.argument("targets", nargs=-1)
@_running
@click.option("--for", "lasts", type=DURATION, help="How long; default: until photon chaos heal.")
@click.option("--fault", type=click.Choice(["drop", "reset", "refuse"]), help="With cut.  [default: drop]")
@click.option("--one-way", is_flag=True, help="With cut or delay.")
@click.option("--delay", type=DURATION, help="With delay: how much more, one way.")
@click.option("--skew", type=float, help="With clock: seconds, may be negative.")
@click.option("--shards", type=click.IntRange(1), help="With reshard.")
@audited
def fault(
    at: Deployed,
    where: Where,
    do: str,
    targets: tuple[str, ...],
    lasts: float | None,
    fault: str | None,
    one_way: bool,
    delay: float | None,
    skew: float | None,
    shards: int | None,
) -> None:
    """Inject one fault. TARGETS are processes, regions, a datacentre, or leader.

    Processes are named as photon status processes shows them.

    \b
    Examples:
      photon chaos fault kill "joiner east-1" --config photon.toml
      photon chaos fault pause leader --for 10s --config photon.toml
      photon chaos fault cut east west --one-way --config photon.toml
      photon chaos fault away west --for 5m --config photon.toml
    """
    from photon.lab.chaos.command import one_fault

    options = {
        "fault": fault,
        "both": False if one_way else None,
        "delay": delay,
        "skew": skew,
        "shards": shards,
    }
    done = [one_fault(where, do, targets, lasts, options)]
    at.show({"done": done}, "\n".join(done))


@click.command("heal")
@_running
@audited
def heal(at: Deployed, where: Where) -> None:
    """Undo all faults: paused processes go on, held ones start, cuts and delays are lifted, disks are emptied.

    \b
    Example:
      photon chaos heal --config photon.toml
    """
    from photon.lab.chaos.command import heal_all

    done = heal_all(where)
    at.show({"done": done}, "\n".join(done))
