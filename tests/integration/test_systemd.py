"""The units of deploy/systemd: systemd takes them; their commands follow, end at SIGTERM, and go on after a kill."""

from __future__ import annotations

import configparser
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from photon.cli.errors import ATTENTION, DONE
from photon.lab.demo.check import records
from photon.lab.demo.generator import Disorder
from tests.integration.commands import photon, running, until
from tests.integration.forked import Process
from tests.integration.join_logs import Logs
from tests.integration.verified_site import Site

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
WAIT_S = 60.0


def command(unit: str, setting: str = "ExecStart", **environment: str) -> list[str]:
    """The words of a command after the program, as systemd passes them: ``${X}`` is a word, ``$X`` are several."""
    parser = configparser.RawConfigParser(strict=False)
    parser.read(UNITS / unit)
    program, *words = shlex.split(parser["Service"][setting])
    assert program == "/opt/photon/bin/photon"
    found: list[str] = []
    for word in words:
        if several := re.fullmatch(r"\$(\w+)", word):
            found += environment[several[1]].split()
        else:
            found.append(re.sub(r"\$\{(\w+)\}", lambda name: environment[name[1]], word))
    return found


def stopped(process: Process) -> int:
    """``systemctl stop``."""
    process.send_signal(signal.SIGTERM)
    return process.wait()


def killed(process: Process) -> int:
    """kill -9 of the main process; then systemd kills the others (KillMode=mixed), and starts the unit again."""
    others = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    code = process.wait()
    for each in others:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(others)
    return code


@pytest.mark.parametrize("unit", ["photon.service", "photon-join@.service"])
def test_systemd_takes_it(unit: str, tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        if os.environ.get("CI"):
            pytest.fail("no systemd-analyze is there: apt-get install systemd")
        pytest.skip("no systemd-analyze is there: apt-get install systemd")
    text = (UNITS / unit).read_text().replace("/opt/photon/bin/photon", sys.executable)
    copy = tmp_path / unit.replace("@", "@clicks")
    copy.write_text(text)
    done = subprocess.run([tool, "verify", "--man=no", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_join_follows_ends_when_told_and_goes_on(tmp_path: Path) -> None:
    logs = Logs(tmp_path, disorder=Disorder(unmatched=0.0, duplicated=0.0, malformed=0.1, before_query=0.0))
    options = f"--config {logs.config}"
    words = command("photon-join@.service", PRIMARY=str(logs.primary), FOREIGN=str(logs.foreign), OPTIONS=options)
    assert words[-2:] == options.split()
    words[words.index("out")] = str(logs.output)

    def rejected() -> int:
        return sum(1 for _ in records(logs.output / "rejected"))

    # Some lines are rejected: SuccessExitStatus
    for share, end, code in ((0.4, killed, -signal.SIGKILL), (0.7, stopped, ATTENTION), (1.0, stopped, ATTENTION)):
        before = rejected()
        logs.write(share)
        with running(*words, log=tmp_path / "log") as process:
            until(lambda: logs.joined() == logs.joinable(), WAIT_S, "all that is there is joined")
            until(lambda: rejected() > before, WAIT_S, "its bad lines are rejected")  # noqa: B023
            assert end(process) == code
    ids = [each["event_id"] for each in records(logs.output / "joined")]
    assert len(ids) == len(set(ids)) == logs.joinable() > 0


def test_the_deployment_goes_on_after_a_kill_and_ends_when_told(tmp_path: Path) -> None:
    site = Site(tmp_path, owned_alarm=300)
    words, reload = (
        [str(site.file) if word == "photon.toml" else word for word in command("photon.service", setting)]
        for setting in ("ExecStart", "ExecReload")
    )
    for end, code in ((killed, -signal.SIGKILL), (stopped, DONE)):
        with running(*words, log=tmp_path / "log") as process:
            until(lambda: photon("status", "processes", "--config", site.file).code == DONE, WAIT_S, "all are up")
            site.file.write_text(site.file.read_text().replace('unmatched_after = "1s"', 'unmatched_after = "2s"'))
            reloaded = photon(*reload)
            assert (reloaded.code, "dispatcher east" in reloaded.out) == (DONE, end is killed), reloaded.out
            assert end(process) == code
