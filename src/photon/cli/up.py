"""``photon up``: runs all processes of a deployment."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from photon.cli.audited import audited
from photon.cli.errors import DONE
from photon.cli.heads import PATH, Deployed, deployed, run_option
from photon.cli.running import show
from photon.cli.tables import say
from photon.config.errors import PhotonError

if TYPE_CHECKING:
    from photon.config.settings import Settings
    from photon.supervision.zygote import Zygote

COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "bright_cyan", "bright_yellow", "bright_green")


@click.command()
@deployed(file=True)
@run_option
@click.option("-d", "--detach", is_flag=True, help="Run in the background; return when all processes are up.")
@click.option("--timeout", type=click.FloatRange(min=1.0), default=60.0, show_default=True,
              help="With --detach: seconds until all must be up.")  # fmt: skip
@click.option("--unhealthy-after", type=click.FloatRange(min=0.0), default=30.0, show_default=True, metavar="SECONDS",
              help="Kill and restart a process that was up and has not answered for this long, not counting time "
                   "in which it could not run; 0: never.")  # fmt: skip
@click.option("--no-logs", is_flag=True, help="In the foreground: show only starts, stops and failures.")
@click.option("--helm", type=PATH, metavar="FILE",
              help="Only write the values for deploy/helm/photon, to run the file on Kubernetes.")  # fmt: skip
@click.option("--background", is_flag=True, hidden=True, help="Internal: marks the process that --detach starts.")
@audited
def up(
    at: Deployed, run: Path | None, detach: bool, timeout: float, unhealthy_after: float, no_logs: bool,
    helm: Path | None, background: bool,
) -> int:  # fmt: skip
    """Run all processes of a deployment file on this machine, and keep them running.

    A process that stops is restarted, with increasing delays. Runs in the foreground until Ctrl-C (twice: kill -9)
    and shows the processes' logs; with --detach, runs until photon down. Missing directories are created, except the
    logs' directories. The key is not created.

    \b
    Examples:
      photon up config/examples/two_datacentres.toml
      photon up photon.toml --detach && photon status processes --config photon.toml
      photon up deploy/helm/three-zones.toml --helm values.yaml
    Exit codes: 0 stopped as requested (with --detach: all are up); 1 failed; 2 wrong usage or configuration.
    """
    if helm is not None:
        return _written(at, helm)
    from photon.supervision.zygote import ALL, zygote

    made = None if detach else click.get_current_context().with_resource(zygote(ALL))
    # Imports these while the zygote starts.
    from photon.cli.config import checked
    from photon.config.errors import UsageError
    from photon.supervision.run_directory import run_directory
    from photon.supervision.up import check_runnable

    file = at.config
    if at.json and not detach:
        raise UsageError("-o json requires --detach")
    found = checked(file)
    check_runnable(file, found.settings, found.missing)
    directory = run_directory(file, run)
    if detach:
        _detached(at, directory, timeout, unhealthy_after)
    else:
        follow = not (no_logs or background)
        _attached(file, found.settings, directory, unhealthy_after, made, follow=follow, dated=background)
    return DONE


def _written(at: Deployed, helm: Path) -> int:
    """Writes the values for the Helm chart. Raises UsageError if the deployment cannot run in containers; then
    nothing is written."""
    from photon.config.disk import RealDisk
    from photon.supervision.kubernetes import values

    def beside(name: str) -> str:
        return (at.base / name).read_text(encoding="utf-8")

    text = values(at.settings, os.path.relpath(at.config, helm.parent), beside(at.config.name), beside)
    RealDisk().replace(helm, text.encode())
    at.show({"file": str(helm)}, f"{helm}: written")
    return DONE


def _detached(at: Deployed, run: Path, timeout: float, unhealthy_after: float) -> None:
    from photon.supervision.detached import start_detached

    command = ["up", str(at.config.absolute()), "--run", str(run), "--unhealthy-after", str(unhealthy_after)]
    try:
        states = start_detached(run, [*command, "--background"], timeout, say)
    except KeyboardInterrupt:
        raise PhotonError("interrupted; photon up continues in the background; stop it with photon down") from None
    show(at, states, run)


def _attached(
    file: Path,
    settings: Settings,
    run: Path,
    unhealthy_after: float,
    made: Zygote | None,
    *,
    follow: bool,
    dated: bool,
) -> None:
    from photon.cli.config import checked
    from photon.config import runtime
    from photon.config.tls import OPERATOR
    from photon.fleet.access import logged, tls_of
    from photon.supervision.deployment import Deployment
    from photon.supervision.up import Up, check_runnable

    def deployment(settings: Settings) -> Deployment:
        tls = logged(tls_of(settings, file.absolute().parent, OPERATOR))
        return Deployment(file.absolute(), settings, run, tls=tls)

    def again() -> Deployment:
        found = checked(file)
        check_runnable(file, found.settings, found.missing)
        return deployment(found.settings)

    first = deployment(settings)

    async def main() -> None:
        stop = asyncio.Event()
        say = _sayer([service.name for service in first.services()], stop, dated=dated)
        up = Up(first, say=say, unhealthy_s=unhealthy_after or None, follow=follow, load=again, zygote=made)

        def told() -> None:
            if stop.is_set():
                up.hurry()
            stop.set()

        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
            numbers.append(signal.SIGHUP)
        for number in numbers:
            asyncio.get_running_loop().add_signal_handler(number, told)
        await up.run(stop)

    runtime.run(main())


def _sayer(names: list[str], stop: asyncio.Event, *, dated: bool) -> Callable[[str, str], None]:
    """Returns a function that prints ``process | line``, coloured by process on a terminal. ``dated``: starts each
    line with the time."""
    width = max(len(name) for name in names)
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}

    def say(name: str, line: str) -> None:
        try:
            at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} " if dated else ""
            click.echo(at + click.style(f"{name:{width}} |", fg=colours.get(name)) + f" {line}")
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):  # the output's reader is gone
                stop.set()

    return say
