"""photon read in parallel with a photon join that is killed again and again; the reader and its consumer are killed
too."""

from __future__ import annotations

import gzip
import io
import os
import random
import select
import signal
import time
from pathlib import Path
from subprocess import PIPE

import pytest

from photon.cli.errors import DONE, FAILED, USAGE
from photon.config.disk import RealDisk
from photon.outputs.damaged import add_damaged
from photon.outputs.log.format import DamagedRange
from tests.integration.commands import photon, running, until
from tests.integration.forked import Process, begin
from tests.integration.join_logs import Following, Logs
from tests.unit.cli.test_sink import line as record
from tests.unit.outputs.helpers import lines, written_output

SEED = int(os.environ.get("PHOTON_SEED", "1"))
SMALL_FILES = ("--max-rejected", "1000", "--set", "output.roll_size=10000", "--set", "output.compress=gzip")
WAIT_S = 60.0
CURSOR = b'{"photon_cursor":'
KINDS = ("joined", "unmatched", "rejected")


def reading(*arguments: str | Path, stdout: int = PIPE) -> Process:
    """``photon read``. Its output is not buffered here: unread output stays in the pipe."""
    process = begin("read", *arguments, stdout=stdout, stderr=PIPE)
    if isinstance(process.stdout, io.BufferedReader):
        process.stdout = process.stdout.detach()
    return process


def ended(process: Process) -> tuple[int, str]:
    """Its exit code and its output."""
    assert process.stderr is not None
    said = process.stderr.read().decode()
    for pipe in filter(None, (process.stdout, process.stderr)):
        pipe.close()
    return process.wait(), said


def output_lines(output: Path, kind: str) -> list[bytes]:
    """Lines of one kind, in the order of the files' names, read without Photon's help."""
    found = []
    names = {path.name for path in (output / kind).iterdir()}
    for name in sorted(names):
        if not name.endswith(".tmp") and not (name.endswith(".gz") and name.removesuffix(".gz") in names):
            data = (output / kind / name).read_bytes()
            found += (gzip.decompress(data) if name.endswith(".gz") else data).splitlines(keepends=True)
    return found


class Billing:
    """A consumer that commits lines and cursor together, as a database would."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.cursor = "beginning"
        self.committed: list[bytes] = []

    def session(self, take: int, seconds: float, how: signal.Signals, *, follow: bool = True) -> int:
        """Reads about ``take`` bytes, or for some time, then ends the reader; commits up to the last cursor."""
        kinds = [argument for kind in KINDS for argument in ("--kind", kind)]
        options = ["--from", self.cursor, "--with-cursor", *kinds, *(["--follow"] if follow else [])]
        process = reading(self.output, *options)
        assert process.stdout is not None
        data = process.stdout.readline()  # the cursor
        deadline = time.monotonic() + seconds
        while len(data) < take and (left := deadline - time.monotonic()) > 0:
            if select.select([process.stdout], [], [], left)[0]:
                part = os.read(process.stdout.fileno(), 8192)
                if not part:
                    break
                data += part
        if follow:
            process.send_signal(how)
        code, said = ended(process)
        assert (code, said) == (-how if how is signal.SIGKILL and follow else DONE, "")
        self._commit(data)
        return len(data)

    def _commit(self, data: bytes) -> None:
        pending: list[bytes] = []
        for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            if line.startswith(CURSOR):
                self.committed += pending
                self.cursor, pending = line.decode().rstrip(), []
            else:
                pending.append(line)

    def of(self, kind: str) -> list[bytes]:
        marks = {"joined": b'"foreign":', "unmatched": b'"reason":"no primary event'}
        return [line for line in self.committed if marks[kind] in line]


def kept(output: Path, cursor: Path, lines: Path, how: signal.Signals, seconds: float) -> None:
    """A session of a reader with a cursor in a file, and its lines appended to another."""
    with lines.open("ab") as file:
        process = reading(output, "--follow", "--cursor", cursor, stdout=file.fileno())
    time_left = time.monotonic() + seconds
    while time.monotonic() < time_left and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(how)
    code, said = ended(process)
    assert said == ""
    assert code in (DONE, -how)  # it may not even have begun


def test_lines_and_cursor_committed_together_are_exactly_once(tmp_path: Path) -> None:
    draw = random.Random(SEED)
    logs = Logs(tmp_path, clicks=400, seed=SEED)
    logs.write(0.1)
    with logs.following(*SMALL_FILES) as following:
        until(lambda: logs.joined() > 0, WAIT_S, "the first joins")
        following.kill()
    billing, sessions = Billing(logs.output), 0
    cursor, lines = tmp_path / "cursor", tmp_path / "lines.jsonl"
    for share in (0.4, 0.7, 1.0):
        logs.write(share)
        with logs.following(*SMALL_FILES) as following:
            deadline = time.monotonic() + WAIT_S
            while sessions < 3 or not _caught_up(logs, following, deadline):
                how = draw.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
                billing.session(draw.choice((500, 20_000, 1_000_000)), 1.0, how)
                sessions += 1
            kept(logs.output, cursor, lines, draw.choice((signal.SIGKILL, signal.SIGTERM)), 1.0)
            following.kill()
    logs.finish("--set", "output.roll_size=10000")
    billing.session(1 << 30, WAIT_S, signal.SIGTERM, follow=False)
    for kind in ("joined", "unmatched"):
        assert billing.of(kind) == output_lines(logs.output, kind), f"seed {SEED}"
    whole = [line for kind in KINDS for line in output_lines(logs.output, kind)]
    assert sorted(billing.committed) == sorted(whole)
    assert any((logs.output / "joined").glob("*.gz"))
    rest = photon("read", logs.output, "--cursor", cursor)
    assert rest.code == DONE
    seen = lines.read_bytes().splitlines(keepends=True) + rest.out.encode().splitlines(keepends=True)
    joined = output_lines(logs.output, "joined")
    assert list(dict.fromkeys(seen)) == joined  # output repeated after a kill came in its order
    cleared = photon("read", logs.output, "--cleared-only")
    assert (cleared.code, cleared.out.encode()) == (DONE, b"".join(joined))


def _caught_up(logs: Logs, following: Following, deadline: float) -> bool:
    assert following.process.poll() is None
    assert time.monotonic() < deadline
    return logs.joined() == logs.joinable()


def test_how_it_ends(tmp_path: Path) -> None:
    logs = Logs(tmp_path, clicks=100)
    logs.write()
    assert logs.once("--max-rejected", "1000").code == 0
    joined = b"".join(output_lines(logs.output, "joined"))

    # Nobody reads any more: a clean end, whether it writes or waits.
    process = reading(logs.output, "--follow", "--with-cursor")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert ended(process) == (DONE, "")

    # Told to end while the other side reads nothing: at once, and at the end of a line if possible.
    process = reading(*[logs.output], *["--kind=joined"] * 3, "--follow")
    assert process.stdout is not None
    first = os.read(process.stdout.fileno(), 100)
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    rest = process.stdout.read()
    assert ended(process) == (DONE, "")
    assert time.monotonic() - began < 20
    assert joined.startswith(first + rest)
    assert (first + rest).endswith(b"\n")

    # The cursor's place is taken.
    process = reading(logs.output, "--follow", "--cursor", tmp_path / "c")
    until((tmp_path / "c.lock").exists, WAIT_S, "the cursor is locked")
    second = photon("read", logs.output, "--cursor", tmp_path / "c")
    assert process.stdout is not None
    got = b""
    while len(got) < len(joined) and (part := process.stdout.read(len(joined))):
        got += part
    assert got == joined
    process.send_signal(signal.SIGINT)
    assert process.communicate()[0] == b""
    assert (second.code, second.out) == (USAGE, "")
    assert "another process reads with this cursor" in second.err
    assert photon("read", logs.output, "--cursor", tmp_path / "c").out == ""

    # The end stays where it was when it was requested.
    assert photon("read", logs.output, "--from", "end", "--cursor", tmp_path / "end").out == ""
    assert photon("read", logs.output, "--cursor", tmp_path / "end").out == ""
    lost = photon("read", logs.output, "--from", '{"photon_cursor":1,"slots":{"local-1":{"joined":[77,1]}}}')
    assert (lost.code, lost.out, lost.err.count("\n")) == (FAILED, "", 1)
    assert "no such file is published" in lost.err


def test_a_damaged_range_is_skipped_and_standard_output_has_nothing_but_records(tmp_path: Path) -> None:
    slot = written_output(tmp_path)
    for number in (1, 2, 3):
        slot.final(number, lines(number, 2))
    slot.path(2).with_name(slot.path(2).name + ".gz").unlink()
    output, cursor = str(slot.place.output), str(tmp_path / "cursor")
    stopped = photon("read", output, "--cursor", cursor)
    assert (stopped.code, stopped.out.encode()) == (FAILED, lines(1, 2))
    length = len(lines(2, 2))
    add_damaged(RealDisk(), slot.state, slot.slot, [DamagedRange(slot.name(2), 0, length, "is gone", "")])
    done = photon("read", output, "--cursor", cursor)
    assert (done.code, done.out.encode()) == (DONE, lines(3, 2))
    assert done.err.count("a damaged range of the output is skipped") == 1
    again = photon("read", output, "--cursor", cursor)
    assert (again.code, again.out, again.err) == (DONE, "", "")


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("follower", ["read", "sink"])
def test_a_follower_waits_for_an_output_that_has_not_begun(tmp_path: Path, follower: str, empty: bool) -> None:
    output, log, lake = tmp_path / "out", tmp_path / "log", tmp_path / "lake"
    if empty:
        output.mkdir()
    command = (
        ("read", output) if follower == "read" else ("sink", "parquet", output, "--into", lake, "--roll-age", "1s")
    )
    assert photon(*command).code == USAGE
    with running(*command, "--follow", log=log) as process:
        until(lambda: b"waiting until there is an output" in log.read_bytes(), WAIT_S, "it says that it waits")
        if empty:
            output.rmdir()
        slot = written_output(tmp_path)
        slot.append(1, record(3))
        if follower == "read":
            until(lambda: record(3) in log.read_bytes(), WAIT_S, "the records come")
        else:
            until(lambda: list(lake.glob("joined/*.parquet")), WAIT_S, "the records come")
        process.send_signal(signal.SIGTERM)
        assert process.wait() == DONE


def test_a_follower_that_waits_can_be_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running("sink", "parquet", tmp_path / "out", "--into", tmp_path / "lake", "--follow", log=log) as process:
        until(lambda: b"waiting until" in log.read_bytes(), WAIT_S, "it says that it waits")
        process.send_signal(signal.SIGTERM)
        assert process.wait() == DONE
