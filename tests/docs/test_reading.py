"""The examples in docs/reading.md work as written."""

import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from photon.outputs import Cursor, OutputLog, Position
from tests.unit.outputs.helpers import WrittenSlot

TEXT = (Path(__file__).parents[2] / "docs" / "reading.md").read_text()
SCRIPTS = {code.split("\n")[0][2:]: code for code in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)}
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
RECORD = (
    b'{"event_id":"e%d","key":"k","event_time_ns":%d,"source":{"file":"clicks.log","offset":0},"token":"%016x"}\n'
)


@pytest.fixture
def records(tmp_path: Path) -> list[bytes]:
    """``out/`` in ``tmp_path`` with a final and a growing file."""
    slot = WrittenSlot(tmp_path, "local-1")
    lines = [RECORD % (n, n, n) for n in range(5000)]
    slot.append(1, b"".join(lines[:3000]))
    slot.append(1, RECORD % (7, 7, 7), "unmatched")
    slot.roll(1)
    slot.finish(1)
    slot.append(2, b"".join(lines[3000:]))
    slot.place.state.rename(slot.place.output / ".photon")
    return lines


def run(directory: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=directory, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    return done.stdout


def test_the_consumer_commits_each_record_once(tmp_path: Path, records: list[bytes]) -> None:
    (tmp_path / "bill.py").write_text(SCRIPTS["bill.py"])
    for limit in (["--limit", "1700"], [], []):
        run(tmp_path, sys.executable, "bill.py", "out/", *limit)
    with sqlite3.connect(tmp_path / "billing.db") as db:
        assert [line.encode() for (line,) in db.execute("SELECT record FROM clicks ORDER BY rowid")] == records
    db.close()


def test_the_api(tmp_path: Path, records: list[bytes]) -> None:
    (tmp_path / "read_output.py").write_text(SCRIPTS["read_output.py"])
    said = run(tmp_path, sys.executable, "read_output.py", "out/").splitlines()
    assert said == [f"e{n} {n:016x}" for n in range(len(records))]


def test_each_command(tmp_path: Path, records: list[bytes]) -> None:
    here = [command for command in COMMANDS if "out/" in command]
    assert len(here) == 3
    for command in here:
        assert run(tmp_path, *shlex.split(command))


def test_the_cursor_is_one(tmp_path: Path) -> None:
    [shown] = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    cursor = Cursor.decode(shown, "docs")
    assert cursor == Cursor({OutputLog("local-1", "joined"): Position(2, 73400320)})
    assert cursor.encode() == shown.strip().encode()
    assert orjson.loads(shown)["photon_cursor"] == 1
    assert shutil.which("photon", path=ENVIRONMENT["PATH"]) is not None
