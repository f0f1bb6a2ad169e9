"""The units of deploy/systemd: systemd takes them, and their commands follow, end at SIGTERM, and go on."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from photon.cli.errors import ATTENTION, DONE
from photon.lab.demo.generator import Disorder
from tests.integration.commands import photon, running, until
from tests.integration.join_logs import Logs
from tests.integration.verified_site import Site

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
WAIT_S = 60.0


def command(unit: str, **environment: str) -> list[str]:
    """The words of ExecStart after the program, as systemd passes them: ``${X}`` is a word, ``$X`` are several."""
    parser = configparser.RawConfigParser(strict=False)
    parser.read(UNITS / unit)
    program, *words = shlex.split(parser["Service"]["ExecStart"])
    assert program == "/opt/photon/bin/photon"
    found: list[str] = []
    for word in words:
        if several := re.fullmatch(r"\$(\w+)", word):
            found += environment[several[1]].split()
        else:
            found.append(re.sub(r"\$\{(\w+)\}", lambda name: environment[name[1]], word))
    return found


@pytest.mark.parametrize("unit", ["photon.service", "photon-join@.service"])
def test_systemd_takes_it(unit: str, tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("no systemd-analyze is there: apt-get install systemd")
    text = (UNITS / unit).read_text().replace("/opt/photon/bin/photon", sys.executable)
    copy = tmp_path / unit.replace("@", "@clicks")
    copy.write_text(text)
    done = subprocess.run([tool, "verify", "--man=no", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_join_follows_ends_when_told_and_goes_on(tmp_path: Path) -> None:
    logs = Logs(tmp_path, disorder=Disorder(unmatched=0.0, duplicated=0.0, malformed=0.02, before_query=0.0))
    options = f"--config {logs.config}"
    words = command("photon-join@.service", PRIMARY=str(logs.primary), FOREIGN=str(logs.foreign), OPTIONS=options)
    assert words[-2:] == options.split()
    words[words.index("out")] = str(logs.output)
    for share in (0.5, 1.0):
        logs.write(share)
        with running(*words, log=tmp_path / "log") as process:
            until(lambda: logs.joined() == logs.joinable(), WAIT_S, "all that is there is joined")
            process.send_signal(signal.SIGTERM)
            assert process.wait() == ATTENTION  # some lines are rejected: SuccessExitStatus
    assert logs.joined() > 0


def test_the_deployment_runs_in_the_foreground_and_ends_when_told(tmp_path: Path) -> None:
    words = command("photon.service")
    site = Site(tmp_path, owned_alarm=300)
    words[words.index("photon.toml")] = str(site.file)
    with running(*words, log=tmp_path / "log") as process:
        until(lambda: photon("status", "processes", "--config", site.file).code == DONE, WAIT_S, "all are up")
        process.send_signal(signal.SIGTERM)
        assert process.wait() == DONE
