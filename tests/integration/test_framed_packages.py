"""`photon join` with the example packages that cut files by their own framing, killed in the middle."""

from __future__ import annotations

import os
import shutil
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pytest

from photon.lab.demo.check import records
from tests.integration.join_logs import Logs

EXAMPLES = Path(__file__).parents[2] / "adapters" / "examples"
PAIRS = 3000
Write = Callable[[Path, range], None]


class Package(NamedTuple):
    adapter: str
    primary: Write
    foreign: Write
    number: Callable[[dict[str, Any]], tuple[int, int]]  # numbers of a joined record's foreign and primary records


def _text(lines: Callable[[int], str]) -> Write:
    def write(path: Path, numbers: range) -> None:
        with path.open("a") as log:
            log.writelines(lines(n) for n in numbers)

    return write


def _trace(n: int) -> str:
    head = f"2026-11-29T10:00:00.{n:06d}Z ERROR [r{n}] it is number {n}\n"
    return head + 'Traceback:\n  File "a.py", line 1\n\nKeyError\n' * (n % 3)


def _avro(fields: dict[str, str], row: Callable[[int], dict[str, Any]], codec: str) -> Write:
    schema = {"type": "record", "name": "Row", "fields": [{"name": k, "type": t} for k, t in fields.items()]}

    def write(path: Path, numbers: range) -> None:
        with path.open("a+b") as log:
            fastavro.writer(log, schema, map(row, numbers), codec=codec, sync_interval=500)

    return write


def _binary(record: Callable[[int], bytes]) -> Write:
    def write(path: Path, numbers: range) -> None:
        with path.open("ab") as log:
            for each in map(record, numbers):
                log.write(struct.pack("<II", len(each), zlib.crc32(each)) + each)

    return write


def _numbers(foreign: str, primary: str) -> Callable[[dict[str, Any]], tuple[int, int]]:
    return lambda joined: (
        int(str(joined["foreign"][foreign]).lstrip("cr")),
        int(str(joined["primary"][primary]).lstrip("sr")),
    )


PACKAGES = {
    "stack_traces": Package(
        "stack_traces.py:StackTraces",
        _text(lambda n: f"2026-11-29T10:00:00Z r{n} GET /item/{n} 500\n"),
        _text(_trace),
        _numbers("request", "request"),
    ),
    "avro_clicks": Package(
        "avro_clicks.py:AvroClicks",
        _avro({"search": "string"}, lambda n: {"search": f"s{n}"}, "null"),
        _avro(
            {"click": "string", "search": "string", "time_ms": "long"},
            lambda n: {"click": f"c{n}", "search": f"s{n}", "time_ms": 1_796_000_000_000 + n},
            "deflate",
        ),
        _numbers("click", "search"),
    ),
    "length_crc": Package(
        "length_crc.py:PlayerSamples",
        _binary(lambda n: struct.pack("<Q16s", n, b"tv")),
        _binary(lambda n: struct.pack("<QQqd", n, n, 1_796_000_000_000_000_000 + n, n / 2)),
        _numbers("id", "session"),
    ),
}


def torn(path: Path, write: Write, numbers: range) -> Iterator[None]:
    """Appends, with a pause after three bytes fewer."""
    whole = path.with_name(".whole")
    shutil.copy(path, whole)
    write(whole, numbers)
    data = whole.read_bytes()
    whole.unlink()
    for to in (len(data) - 3, len(data)):
        with path.open("ab") as log:
            log.write(data[log.tell() : to])
        yield


@pytest.mark.parametrize("name", PACKAGES)
def test_each_record_once_with_its_own_primary_under_kill_9(tmp_path: Path, name: str) -> None:
    package = PACKAGES[name]
    site = Logs(tmp_path, clicks=1)
    source = package.adapter.partition(":")[0]
    shutil.copy(EXAMPLES / name / source, tmp_path / source)
    site.config.write_text(f'[join.x]\nadapter = "{package.adapter}"\n')
    primary, foreign = site.primary / "a.log", site.foreign / "b.log"
    package.primary(primary, range(PAIRS // 2))
    package.foreign(foreign, range(PAIRS // 3))
    steps = torn(foreign, package.foreign, range(PAIRS // 3, PAIRS // 2))
    for least in (PAIRS // 3 - 1, PAIRS // 3 - 1, PAIRS // 2 - 1):
        with site.following() as running:
            deadline = time.monotonic() + 60
            while site.joined() < least:
                assert time.monotonic() < deadline, running.err.read_text()
                time.sleep(0.02)
            running.kill()
        next(steps, None)
    package.primary(primary, range(PAIRS // 2, PAIRS))
    package.foreign(foreign, range(PAIRS // 2, PAIRS))
    for log in (primary, foreign):
        os.utime(log, (1_790_000_000, 1_790_000_000))  # nobody continues the last record
    result = site.once()
    assert result.code == 0, result.err
    found = [package.number(each) for each in records(site.output / "joined")]
    assert Counter(found) == Counter((n, n) for n in range(PAIRS))
    assert (result.json["pending"], result.json["rejected"], result.json["unmatched"]) == (0, 0, 0)
