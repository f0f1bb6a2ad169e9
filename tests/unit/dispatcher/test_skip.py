"""The place to which skipping leads in one log, compared with reading all of it; and the positions, committed."""

from __future__ import annotations

import gzip
import os
import random
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from photon.adapters.contract import Framing, LogFile
from photon.adapters.logs.api import LogPosition
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.reader import open_source
from photon.dispatcher import skipping
from photon.dispatcher.errors import StateError
from photon.dispatcher.ledger import Verdict, cell
from photon.dispatcher.partitions import ALL, Partition
from photon.dispatcher.process import Places
from photon.dispatcher.skipping import Log, Skip, commit_skips, locked_states, plan, plan_skips, times_of
from photon.dispatcher.state import Changes
from photon.idregistry.api import Digester
from photon.joiner.api import ForeignEvent
from tests.unit.dispatcher.world import DIGESTER, HOUR, StoredRow, Words, stored

ADAPTER = Words({})
ROUNDS = 2000 if os.environ.get("PHOTON_FULL") else 150
MAX_RECORD = 300


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some hundred records are many places, blocks and looks back."""
    monkeypatch.setattr(skipping, "PROBE_BYTES", 60)
    monkeypatch.setattr(skipping, "BLOCK_BYTES", 256)
    monkeypatch.setattr(skipping, "LOOK_BACK_BYTES", 1024)


@dataclass(frozen=True)
class Line:
    data: bytes
    hour: int | None  # ``None`` means that it is unreadable


def line(number: int, hour: int, width: int = 0) -> Line:
    return Line(b"id%d%s k %d" % (number, b"x" * width, hour), hour)


def planned(path: Path, to_hour: int | None, *, offset: int = 0, data_start: int = 0) -> Skip:
    log = Log(LogPosition("log1", path.name, offset), data_start, path.stat().st_size)
    source = open_source(path)
    try:
        to_ns = None if to_hour is None else to_hour * HOUR
        return plan(log, source, times_of(ADAPTER, log), to_ns, max_record=MAX_RECORD)
    finally:
        source.close()


def written(path: Path, lines: list[Line], tail: bytes = b"") -> list[int]:
    """Offsets of the lines, and of their end."""
    offsets = [0]
    for each in lines:
        offsets.append(offsets[-1] + len(each.data) + 1)
    data = b"".join(each.data + b"\n" for each in lines) + tail
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return offsets


@pytest.mark.parametrize("name", ["a.log", "a.log.gz"])
def test_as_if_all_were_read(tmp_path: Path, name: str) -> None:
    seed = int(os.environ.get("PHOTON_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"PHOTON_SEED={seed}")
    rnd = random.Random(seed)
    for _ in range(ROUNDS):
        count = rnd.choice([0, 1, 2, 10, 300])
        # Disorder spans 20 lines at most, well within LOOK_BACK_BYTES.
        lines = [line(n, n // 3 + rnd.randrange(-4, 4), rnd.choice([0, 0, 5, 30])) for n in range(count)]
        offsets = written(tmp_path / name, lines, rnd.choice([b"", b"partial k 1", b"x" * 700]))
        begin = rnd.choice([0, 0, rnd.choice(offsets)])
        to_hour = rnd.randrange(-5, count // 3 + 6) if rnd.random() < 0.8 else None
        got = planned(tmp_path / name, to_hour, offset=begin)
        expected = offsets[-1]
        if to_hour is not None:
            after = [o for o, each in zip(offsets, lines, strict=False) if each.hour >= to_hour]  # type: ignore[operator]
            expected = next((o for o in after if o >= begin), expected)
        assert (got.log.begin, got.to) == (begin, expected)
        left_out = [each.hour for o, each in zip(offsets, lines, strict=False) if begin <= o < expected]
        if not left_out:
            assert (got.records, got.oldest_ns, got.newest_ns, got.skipped) == (0, None, None, 0)
            continue
        assert got.oldest_ns in {hour * HOUR for hour in left_out if hour is not None}
        assert got.newest_ns in {hour * HOUR for hour in left_out if hour is not None}
        assert len(left_out) / 4 <= got.records <= len(left_out) * 4


@pytest.mark.parametrize("name", ["a.log", "a.log.gz"])
def test_long_lines_blank_ones_and_garbage_on_the_way(tmp_path: Path, name: str) -> None:
    seed = int(os.environ.get("PHOTON_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"PHOTON_SEED={seed}")
    rnd = random.Random(seed)
    for _ in range(ROUNDS):
        lines = []
        for n in range(rnd.choice([3, 100, 300])):
            other = rnd.choice([b"", b"garbage", b"\xff" * 40, b"y" * rnd.choice([299, 301, 2000])])
            lines.append(line(n, n) if rnd.random() < 0.8 else Line(other, None))
        offsets = written(tmp_path / name, lines)
        assert planned(tmp_path / name, None).to == offsets[-1]
        to_hour = rnd.randrange(len(lines) + 1)
        got = planned(tmp_path / name, to_hour)
        assert got.to in offsets
        kept = [each for o, each in zip(offsets, lines, strict=False) if o < got.to]
        assert all(each.hour is None or each.hour < to_hour for each in kept), "a record of the time was left out"
        first = next((o for o, each in zip(offsets, lines, strict=False) if (each.hour or -1) >= to_hour), None)
        assert first is None or got.to <= first


def test_one_clock_that_is_hours_wrong_costs_reading_more_not_less(tmp_path: Path) -> None:
    for wrong in range(0, 300, 7):
        lines = [line(n, 1000 if n == wrong else 0 if n == wrong + 1 else n) for n in range(300)]
        offsets = written(tmp_path / "a.log", lines)
        assert planned(tmp_path / "a.log", 250).to <= offsets[250]
        if wrong > 250:
            assert planned(tmp_path / "a.log", 250).to == offsets[250]


def test_little_is_read_of_a_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the real sizes
    path = tmp_path / "a.log"
    offsets = written(path, [line(n, n, 960) for n in range(40_000)])
    source = open_source(path)
    read = 0
    log = Log(LogPosition("log1", path.name, 0), 0, path.stat().st_size)
    times = times_of(ADAPTER, log)

    def counted(offset: int, data: bytes) -> list[tuple[int, int]]:
        nonlocal read
        read += len(data)
        return times(offset, data)

    try:
        got = plan(log, source, counted, 30_000 * HOUR, max_record=1 << 20)
    finally:
        source.close()
    assert got.to == offsets[30_000]
    assert read < 7 << 20 < 37 << 20 < path.stat().st_size
    assert abs(got.records - 30_000) < 600
    assert (got.oldest_ns, got.newest_ns) == (0, 29_999 * HOUR)


# -- a directory and a state -----------------------------------------------------------------------------------------
@pytest.fixture
def places(tmp_path: Path) -> Places:
    (tmp_path / "clicks" / "deep").mkdir(parents=True)
    return Places(tmp_path / "clicks", tmp_path / "out", tmp_path / "state", ("**/*.log*",), MAX_RECORD)


def read_on(places: Places, positions: list[LogPosition]) -> list[bytes]:
    follower = Follower(
        places.foreign, patterns=places.patterns, has_header=False, max_record=MAX_RECORD, positions=positions,
        report=lambda problem: pytest.fail(str(problem)),
    )  # fmt: skip
    follower.scan()
    lines: list[bytes] = []
    while blocks := follower.poll(1 << 20):
        for block in blocks:
            lines += block.data.splitlines()
    follower.close()
    return lines


def test_what_is_not_skipped_is_read_and_the_ledger_stays_as_it_was(places: Places) -> None:
    lines = {name: [line(1000 * i + n, n) for n in range(50)] for i, name in enumerate("abcd")}
    offsets = written(places.foreign / "a.log", lines["a"])
    written(places.foreign / "a.log.1", lines["b"])  # the log that was rolled before
    written(places.foreign / "deep" / "c.log.gz", lines["c"])
    written(places.foreign / "d.log", lines["d"], b"id9999 k 99")
    written(places.foreign / "other.txt", lines["a"])
    (places.foreign / "empty.log").touch()
    with locked_states(places, "clicks", ADAPTER, DIGESTER, create=False) as states:
        assert states == {}
        assert not places.state.exists(), "showing makes nothing"
    first = plan_skips(places, ADAPTER, [], None)
    by_path = {each.log.position.path: each for each in first.skips}
    assert sorted(by_path) == ["a.log", "a.log.1", "d.log", "deep/c.log.gz"]
    with locked_states(places, "clicks", ADAPTER, DIGESTER, create=True) as states:
        state = states[ALL]
        identity = by_path["a.log"].log.position.identity
        pending = StoredRow(ForeignEvent(b"id", b"d" * 16, 0, b"k", b"r", LogFile("a.log"), 0, 5, 0), 1)
        state.commit(
            Changes(
                positions={identity: LogPosition(identity, "a.log", offsets[30])},
                cells={cell(0, Verdict.READ): 30, cell(0, Verdict.JOINED): 29},
                stored=stored([pending]),
            )
        )
        before = state.ledger()
        with (
            pytest.raises(StateError, match="in use by another dispatcher"),
            locked_states(places, "clicks", ADAPTER, DIGESTER, create=False),
        ):
            pass
        skips = plan_skips(places, ADAPTER, state.positions(), 20 * HOUR)
        assert skips.problems == []
        begins = {each.log.position.path: (each.log.begin, each.skipped) for each in skips.skips}
        assert begins["a.log"] == (offsets[30], 0), "never back"
        assert begins["a.log.1"][0] == 0
        commit_skips(states, skips)
        assert state.ledger() == before
        assert before.total.balance == 0
        positions = state.positions()
    expected = [each.data for each in lines["a"][30:]]
    expected += [each.data for name in "bcd" for each in lines[name][20:]]
    assert sorted(read_on(places, positions)) == sorted(expected)
    with (places.foreign / "d.log").open("ab") as file:
        file.write(b"9\nid7 k 1\n")
    with locked_states(places, "clicks", ADAPTER, DIGESTER, create=True) as states:
        state = states[ALL]
        commit_skips(states, first)
        now = read_on(places, state.positions())
    assert now == [b"id9999 k 999", b"id7 k 1"], "the line that was being written then, and what came behind"


def test_a_skip_reaches_the_dispatcher_of_each_log(places: Places) -> None:
    for name in range(8):
        written(places.foreign / f"{name}.log", [line(10 * name + n, n) for n in range(10)])
    several = replace(places, partition=Partition(1, 3))
    with locked_states(several, "clicks", ADAPTER, DIGESTER, create=True) as states:
        commit_skips(states, plan_skips(several, ADAPTER, [], None))
        held = {each: [position.identity for position in state.positions()] for each, state in states.items()}
    assert sum(map(len, held.values())) == 8
    assert all(each.holds(identity) for each, identities in held.items() for identity in identities)


def test_another_key_is_refused(places: Places) -> None:
    with locked_states(places, "clicks", ADAPTER, DIGESTER, create=True):
        pass
    with (
        pytest.raises(StateError, match="another key file"),
        locked_states(places, "clicks", ADAPTER, Digester(b"x" * 16, "clicks"), create=False),
    ):
        pass


def test_headers_truncated_files_and_unreadable_ones(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    class Headed(Words):
        foreign_has_header = True

    adapter = Headed({})
    (places.foreign / "a.log").write_bytes(b"\xef\xbb\xbfid key hour\nid1 k 1\nid2 k 2\n")
    (skip_,) = plan_skips(places, adapter, [], 2 * HOUR).skips
    assert (skip_.log.begin, skip_.to, skip_.position().header) == (15, 23, b"id key hour")
    far = LogPosition(skip_.log.position.identity, "a.log", 500)
    (skip_,) = plan_skips(places, adapter, [far], None).skips
    assert (skip_.log.begin, skip_.to) == (15, 31)
    (places.foreign / "b.log.lz4").write_bytes(b"id1 k 1\n")

    def refused(path: Path, framing: Framing) -> object:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("photon.dispatcher.skipping.open_anywhere", refused)
    found = plan_skips(places, adapter, [], None)
    assert found.skips == []
    assert sorted(problem.split(":")[0] for problem in found.problems) == ["a.log", "b.log.lz4"]
