"""Computations over logs in object storage: each line counts once, whenever the computing process is killed."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import photon
from photon.computing.journal import read_status
from photon.config.disk import RealDisk
from tests.integration.commands import photon as command
from tests.integration.commands import running, until
from tests.objects.server import Site

WAIT_S = 60.0
PIECES, LINES = 6, 50
FILE = """
from photon.computing.examples.recipes import word_count

topology = word_count("{url}/texts", "out")
"""


def test_each_line_counts_once(site: Site, tmp_path: Path) -> None:
    file, state, log = tmp_path / "words.py", tmp_path / "state", tmp_path / "log"
    file.write_text(FILE.format(url=site.url))
    site.faults.refused, site.faults.cut = 0.03, 0.03
    run = ("compute", "run", file, "--state", state, "--quiet")

    def reads(since_ns: int) -> bool:
        return any(each.at_ns > since_ns and each.counts["records"] for each in read_status(RealDisk(), state))

    for number in range(PIECES):
        lines = ({"at": f"2026-03-01T09:{number:02}:00Z", "text": f"w{n}"} for n in range(LINES))
        site.put(f"texts/{number}.log", "\n".join(map(json.dumps, lines)).encode())
        if number % 2:
            since_ns = time.time_ns()
            with running(*run, log=log) as process:
                until(lambda: state.is_dir() and reads(since_ns), WAIT_S, "it reads objects")  # noqa: B023
                assert process.poll() is None, log.read_text()
                process.send_signal(signal.SIGKILL)
                process.wait()
    done = command(*run, "--once")
    assert done.code == 0, done.err
    counts = [each.foreign for each in photon.read(tmp_path / "out/counts")]
    found = sorted((each["from_ns"], each["key"], each["n"]) for each in counts)
    minutes = {each["from_ns"] for each in counts}
    assert len(minutes) == PIECES
    assert found == sorted((at, f"w{n}", 1) for at in minutes for n in range(LINES))
