"""``photon spark demo``: makes a first verification report to explore, on a generated day with a planted loss."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import PATH
from photon.config.errors import PhotonError, UsageError

FINAL_S = 60.0  # seconds to wait until an output file is finished and compressed
POLL_S = 0.5


@click.command("demo")
@click.option("--into", "directory", type=PATH, required=True, help="New directory for the deployment.")
@click.option("--clicks", type=click.IntRange(100, 1_000_000), default=2_000, show_default=True,
              help="Number of clicks in the day; there are ten times as many queries.")  # fmt: skip
@click.option("--master", metavar="URL", default="local[2]", show_default=True, help="Spark's master.")
def demo(directory: Path, clicks: int, master: str) -> int:
    """Generate a day of events, join it, lose a file, and verify. Makes a first report to explore.

    Runs a deployment of two datacentres in the directory, and shows each command before running it. The deployment is
    left running, so that the loss can be repaired; the last lines say how.

    \b
    Example:
      photon spark demo --into /tmp/first-report
    Exit codes: 0 the verification found the lost file; 1 it did not, or something failed; 2 wrong usage.
    """
    from photon.lab.demo.deployment import DemoDeployment, Shape

    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory}: is not empty; give a new directory to --into")
    directory = directory.absolute()
    made = DemoDeployment(directory, Shape(joiners=1, round_trip_s=None, together=True))
    file = made.deployment.file
    file.write_text(file.read_text() + _OUTPUT)
    day = datetime.now(UTC).date() - timedelta(days=1)
    run = _Shell(directory)
    run("feed", "day", "--into", "east", "--into", "west", "--day", str(day), "--clicks", str(clicks))
    run("up", file.name, "--detach")
    try:
        outputs = [word for name in made.places for word in ("--output", f"{name}/output")]
        run("feed", "check", "--of", "east", *outputs, "--wait", "180s")
        lost = _final_file(directory / "east" / "output" / "joined").relative_to(directory)
        click.echo(f"\n$ rm {lost}")
        (directory / lost).unlink()
        verify = ("spark", "verify", "--config", file.name, "--from", str(day), "--to", str(day + timedelta(days=1)),
                  "--report", f"reports/{day}", "--master", master, "--spark", "spark.ui.enabled=false")  # fmt: skip
        code = run(*verify, codes=(DONE, ATTENTION))
    except BaseException:
        run("down", file.name)
        raise
    if code != ATTENTION:
        raise PhotonError(f"{lost} was deleted, and the verification did not find it; see {directory}/reports/{day}")
    click.echo(
        f"\nThe report: {directory}/reports/{day}/report.html\nTo repair it, verify again, and stop the deployment:\n"
        f"  cd {shlex.quote(str(directory))}\n"
        f"  photon spark recover --config {file.name} --report reports/{day} --dry-run\n"
        f"  photon spark recover --config {file.name} --report reports/{day} --yes\n"
        f"  photon {shlex.join(verify)}\n"
        f"  photon down {file.name}"
    )
    return DONE


_OUTPUT = """
[output]
roll_age = "5s"
compress = "gzip"
"""


def _final_file(directory: Path) -> Path:
    """Waits for the first finished and compressed file, and returns it. Raises PhotonError."""
    until = time.monotonic() + FINAL_S
    while not (found := sorted(directory.glob("*.gz"))):
        if time.monotonic() > until:
            raise PhotonError(f"{directory}: no output file was finished within {FINAL_S:g} s")
        time.sleep(POLL_S)
    return found[0]


class _Shell:
    """Runs photon commands in a directory, as a user would type them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, *words: str, codes: Sequence[int] = (DONE,)) -> int:
        """Runs a command and returns its exit code. Raises PhotonError if it is not in ``codes``."""
        click.echo(f"\n$ photon {shlex.join(words)}")
        sys.stdout.flush()
        command = [sys.executable, "-m", "photon", *words]
        done = subprocess.run(command, cwd=self._directory, env=os.environ, check=False)
        if done.returncode not in codes:
            raise PhotonError(f"photon {shlex.join(words)}: exit code {done.returncode}; see {self._directory}")
        return done.returncode
