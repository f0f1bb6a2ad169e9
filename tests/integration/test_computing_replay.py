"""Code with a bug is fixed and replayed, killed with kill -9 at any moment: a reader with a cursor ends with what the
wrong code made of the time before, and the right code of the time after, each record once."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import photon
from tests.integration.commands import children, drawn_seed, running, until
from tests.integration.commands import photon as command

KILLS = 8 if os.environ.get("PHOTON_FULL") else 2
CLICKS = 1_500
SECONDS = 30
T_S = 1_760_000_000
FROM_S = T_S + 13
WAIT_S = 120.0
NS = 1_000_000_000
CODE = """
from photon.computing import SECOND_NS, Topology
from photon.computing.windows import Windows, sum_of, tumbling

topology = Topology("sums")
source = topology.{source}
value = lambda record: {factor} * {field}["n"]
windows = Windows("sums", tumbling(SECOND_NS), {{"n": sum_of(value)}})
topology.add(windows, {{source: lambda record: {field}["user"]}}, watermark="exact")
topology.publish("sums", "streams/sums")
"""
Sums = Counter[tuple[str, int]]  # user, second


def _code(base: Path, source: str, field: str, factor: int) -> Path:
    (base / "sums.py").write_text(CODE.format(source=source, field=field, factor=factor))
    return base / "sums.py"


def _click(base: Path, rng: random.Random, n: int) -> Sums:
    """Joins some more clicks, of any time."""
    sums = Sums()
    for name in ("queries", "clicks"):
        (base / name).mkdir(exist_ok=True)
    with open(base / "queries" / f"{n}.log", "w") as queries, open(base / "clicks" / f"{n}.log", "w") as clicks:
        for each in range(CLICKS):
            user, at, worth = f"u{rng.randrange(7)}", T_S + rng.randrange(SECONDS), rng.randrange(100)
            queries.write(f'{{"q":"q{n}-{each}","user":"{user}"}}\n')
            clicks.write(f'{{"id":"c{n}-{each}","q":"q{n}-{each}","t":{at},"user":"{user}","n":{worth}}}\n')
            sums[user, at] += worth
    (base / "join.toml").write_text(
        '[join.clicks]\n[join.clicks.primary]\nformat = "jsonl"\nkey = "q"\n[join.clicks.foreign]\nformat = "jsonl"\n'
        'key = "q"\nid = "id"\ntime = { field = "t", unit = "s" }\n'
    )
    logs = ("--primary", base / "queries", "--foreign", base / "clicks", "--output", base / "out")
    done = command("join", "--config", base / "join.toml", *logs, "--once")
    assert done.code == 0, done.err
    return sums


def _kill_some(base: Path, rng: random.Random, *run: str | Path) -> int:
    killed = 0
    for _ in range(KILLS):
        with running(*run, log=base / "log") as process:
            time.sleep(rng.uniform(0.5, 2.5))
            killed += process.poll() is None
            for pid in (process.pid, *children(process.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    return killed


def _read(base: Path, stream: str, *options: str | Path) -> tuple[list[dict[str, int]], str, int]:
    read = command("read", base / "streams" / stream, *options)
    return [json.loads(line) for line in read.out.splitlines()], read.err, read.code


def _has(files: Path, truth: Sums, second: int) -> bool:
    """True if each user's window that begins then is there: both processes have come so far."""
    found = sum(each.read_text().count(f'"from_ns":{second * NS}') for each in files.glob("*"))
    return found >= sum(each[1] == second for each in truth)


def _sums(records: list[dict[str, int]]) -> Sums:
    sums = Sums()
    for each in records:
        value: dict[str, int] = each["foreign"]  # type: ignore[assignment]
        sums[str(value["key"]), value["from_ns"] // NS] += value["n"]
    return sums


def test_a_reader_with_a_cursor_ends_with_each_record_once(tmp_path: Path) -> None:
    rng = random.Random(drawn_seed())
    wrong = _click(tmp_path, rng, 1)
    where = 'joined("out")', 'record.value["foreign"]'
    file = _code(tmp_path, *where, factor=2)
    cursor = ("--cursor", tmp_path / "cursor")
    assert command("compute", "run", file, "--once", "--processes", "2").code == 0
    have, _, code = _read(tmp_path, "sums", *cursor, "--limit", "40")
    assert code == 0

    more = _click(tmp_path, rng, 2)
    _code(tmp_path, *where, factor=1)
    replay = ("compute", "replay", file, "--name", "fix1", "--once", "--quiet")
    begin = (*replay, "--from", str(FROM_S), "--processes", "2")
    killed = _kill_some(tmp_path, rng, *begin)
    assert command(*begin).code == 0
    state = tmp_path / ".photon-compute" / "sums.fix1"
    done = command("compute", "rescale", file, "--state", state, "--processes", "3")
    assert done.code == 0, done.err
    assert killed + _kill_some(tmp_path, rng, *replay, "--in-place")
    done = command(*replay, "--in-place", timeout=2 * WAIT_S)
    assert done.code == 0, done.err

    last = _click(tmp_path, rng, 3)
    done = command("compute", "run", file, "--once", timeout=WAIT_S)
    assert done.code == 0, done.err
    assert len(list(state.glob("*.db"))) == 3
    rest, said, code = _read(tmp_path, "sums", *cursor)
    assert (code, "sums.fix1" in said, str(FROM_S * NS) in said) == (3, True, True), said
    assert _read(tmp_path, "sums", *cursor)[0::2] == ([], 3)
    kept = [each for each in (*have, *rest) if each["event_time_ns"] < FROM_S * NS]
    new = _read(tmp_path, "sums.fix1")[0]
    truth = Sums()
    for factor, sums in ((2, wrong), (1, more), (1, last)):
        for (user, second), n in sums.items():
            truth[user, second] += n * (factor if second < FROM_S else 1)
    found = _sums([*kept, *new])
    assert {each: (found[each], n) for each, n in truth.items() if found[each] != n} == {}
    before = [each for each in new if each["event_time_ns"] < FROM_S * NS]
    assert _sums(before).keys() == {each for each in last if each[1] < FROM_S}

    again = ("compute", "replay", file, "--name", "fix2", "--once")
    assert "begin one with --from TIME" in command(*again).err
    done = command(*again, "--from", str(FROM_S + 5), "--in-place")
    assert done.code == 0, done.err
    assert "sums.fix2" in _read(tmp_path, "sums.fix1")[1]
    assert all(each["event_time_ns"] >= (FROM_S + 5) * NS for each in _read(tmp_path, "sums.fix2")[0])
    done = command("compute", "run", file, "--once", "--state", state)
    assert (done.code, "was replaced by the replay fix2" in done.err) == (2, True)
    done = command(*replay, "--in-place")
    assert (done.code, "was replaced" in done.err) == (2, True)


def test_live_over_logs_that_grow(tmp_path: Path) -> None:
    rng = random.Random(drawn_seed())
    (tmp_path / "logs").mkdir()
    at = {"field": "at", "format": "iso8601"}
    where = f'log("logs", format="jsonl", key="user", time={at}, within_ns=2 * SECOND_NS)', "record.value"
    file = _code(tmp_path, *where, factor=2)
    truth = Sums()

    def write(seconds: float) -> None:
        until_s = time.time() + seconds
        with open(tmp_path / "logs" / "a.log", "a") as log:
            while (now := time.time()) < until_s:
                user, worth = f"u{rng.randrange(7)}", rng.randrange(100)
                stamp = datetime.fromtimestamp(now, UTC).isoformat()
                log.write(f'{{"at":"{stamp}","user":"{user}","n":{worth}}}\n')
                log.flush()
                truth[user, int(datetime.fromisoformat(stamp).timestamp())] += worth
                time.sleep(0.002)

    with running("compute", "run", file, "--processes", "2", log=tmp_path / "log"):
        write(4)
        from_s = int(time.time())
        write(4)
        joined = tmp_path / "streams" / "sums" / "joined"
        until(lambda: _has(joined, truth, from_s), WAIT_S, "it ran")
    _code(tmp_path, *where, factor=1)
    replay = ("compute", "replay", file, "--name", "fix1", "--quiet")
    assert _kill_some(tmp_path, rng, *replay, "--from", str(from_s), "--processes", "2")
    with running("read", tmp_path / "streams" / "sums", "--follow", "--cursor", tmp_path / "cursor",
                 log=tmp_path / "read") as reader:  # fmt: skip
        _kill_some(tmp_path, rng, *replay, "--in-place")
        done = command(*replay, "--in-place", timeout=WAIT_S)
        assert done.code == 0, done.err
        until(lambda: reader.poll() is not None, WAIT_S, "the reader is told")
        assert reader.wait() == 3
    with running("compute", "run", file, log=tmp_path / "log"):
        write(3)
        last = max(second for _, second in truth)
        new = tmp_path / "streams" / "sums.fix1" / "joined"
        until(lambda: _has(new, truth, last), WAIT_S, "it goes on")
    *lines, said = (tmp_path / "read").read_text().splitlines()
    assert "sums.fix1 from its beginning" in said
    kept = [each for each in map(json.loads, lines) if each["event_time_ns"] < from_s * NS]
    records = [*kept, *_read(tmp_path, "sums.fix1")[0]]
    assert {each["event_time_ns"] >= from_s * NS for each in records} == {True, False}
    assert len({(each["foreign"]["key"], each["foreign"]["from_ns"]) for each in records}) == len(records)  # type: ignore[index]
    assert _sums(records) == {
        (user, second): n * (2 if second < from_s else 1) for (user, second), n in truth.items()
    }
    assert not list(photon.read(tmp_path / "streams" / "sums.fix1", kinds=["late"]))
