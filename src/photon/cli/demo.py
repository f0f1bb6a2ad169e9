"""``photon demo``."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

import click
from rich.console import Console

from photon.cli.errors import DONE, FAILED
from photon.cli.heads import PATH, Printed, formatted


@click.command()
@click.option("--seconds", type=click.FloatRange(min=5.0, max=3600.0), default=30.0, show_default=True,
              help="How long to write lines.")  # fmt: skip
@click.option("--rate", type=click.IntRange(min=10, max=100_000), default=500, show_default=True,
              help="Clicks a second; there are ten times as many queries.")  # fmt: skip
@click.option("--seed", type=int, default=1, show_default=True,
              help="Chooses the stream and what is killed; an odd seed prefers the registry's leader.")  # fmt: skip
@click.option("--keep", type=PATH, metavar="DIR", help="Keep all files in this new directory.")
@click.option("--no-kill", is_flag=True, help="Kill nothing.")
@formatted
def demo(seconds: float, rate: int, seed: int, keep: Path | None, no_kill: bool, out: Printed) -> int:
    """Join a live stream in two datacentres, lose one, and verify every click.

    Each datacentre has an event store, two joiners, a verifier and a dispatcher; three registry replicas stand in
    three regions, 30 ms apart: all processes of their own. One whole datacentre is killed with kill -9, its registry
    replica included; the other takes over; it returns and catches up. Exit code 0 only if every click came out
    exactly once over both, with the right contents, the ledgers of both agree with the truth, and no verifier has an
    alarm.

    \b
    Example:
      photon demo --seconds 30 --rate 1000 --seed 2 --keep /tmp/demo
    """
    from photon.config.errors import UsageError
    from photon.supervision.zygote import ALL, zygote

    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise UsageError(f"{keep}: is not empty; name a new directory for --keep")
    made = click.get_current_context().with_resource(zygote(ALL))

    from photon.cli.demo_view import DemoView, result
    from photon.config import runtime
    from photon.lab.demo.run import DemoOptions, run

    directory = (keep or Path(os.environ.get("TMPDIR", "/tmp")) / f"photon-demo-{os.getpid()}").absolute()
    view = DemoView()
    try:
        options = DemoOptions(directory, seconds, rate, seed, not no_kill)
        report = runtime.run(run(options, say=view.say, show=view.show, zygote=made))
    finally:
        view.close()
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    whole = dataclasses.asdict(report) | {"good": report.good, "output": str(keep) if keep else None}
    out.show(whole, lambda: Console().print(result(report, directory, kept=keep is not None)))
    return DONE if report.good else FAILED
