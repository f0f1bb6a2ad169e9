"""The live stream: the same bytes everywhere, regardless of holds; and when its lines are seen in outputs."""

import gzip
from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest

from photon.lab.chaos.api import ChaosFailed
from photon.lab.chaos.traffic import Traffic
from photon.lab.demo.feed import Logs
from photon.lab.demo.generator import Arriving, Disorder, Generator
from photon.lab.latency import Follower, Verdict

SECONDS = 100.0


def generator(seed: int = 5) -> Generator:
    return Generator(seed, clicks=600, seconds=SECONDS, queries_per_click=2, disorder=Disorder(malformed=0.02))


def logs(directory: Path) -> Logs:
    found = Logs(directory / "queries", directory / "clicks")
    found.primary.mkdir(parents=True)
    found.foreign.mkdir()
    return found


def content(found: Logs) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for side in (found.primary, found.foreign) for path in side.iterdir()}


def test_lines_come_in_the_order_of_their_arrival() -> None:
    stream, taken = Arriving(generator().rounds()), []
    for second in range(130):
        now = stream.due(second * 1_000_000)
        assert all((second - 1) * 1_000_000 < line.at_us <= second * 1_000_000 for line in now)
        taken += now
    assert stream.done
    assert sorted(taken, key=lambda line: line.at_us) == taken
    expected = list(generator().lines())
    assert sorted(line.data for line in taken) == sorted(line.data for line in expected)


def test_only_what_is_soon_due_is_held() -> None:
    stream, most = Arriving(generator().rounds()), 0
    for second in range(130):
        stream.due(second * 1_000_000)
        most = max(most, len(stream._waiting))
    assert most < 3 * 600 * 5 / SECONDS


def test_released_lines_come_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("photon.lab.chaos.traffic.LINES_A_STEP", 100)
    traffic = Traffic(generator(), {"east": logs(tmp_path)})
    east = traffic.copies["east"]
    traffic.hold("east")
    traffic.step(50_000_000)
    held = east.waiting
    traffic.flow("east")
    traffic.step(50_000_000)
    assert held > 200
    assert (east.waiting, east.written) == (held - 100, 100)


async def test_the_longest_time_between_two_writes_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, 0.0, 5.0, 10.0, 65.0, 70.0])  # the begin, then before and after each write
    clock = SimpleNamespace(monotonic=lambda: next(moments, 200.0))
    monkeypatch.setattr("photon.lab.chaos.traffic.time", clock)
    traffic = Traffic(generator(), {"east": logs(tmp_path)}, now_ns=lambda: 7, step_s=0.0)
    await traffic.run()
    assert traffic.late_s == 200.0 - 65.0


def test_copies_are_the_same_whenever_they_are_written(tmp_path: Path) -> None:
    places = {name: logs(tmp_path / name) for name in ("east", "west")}
    traffic = Traffic(generator(), places, now_ns=lambda: 7)
    for second in range(130):
        if second == 20:
            traffic.hold("west")
        if second == 70:
            traffic.flow("west")
        if second == 80:
            assert "bytes cut off" in traffic.truncate("east")
            with pytest.raises(ChaosFailed, match="already truncated"):
                traffic.truncate("east")
        if second == 85:
            traffic.restore("east")
        traffic.step(second * 1_000_000)
    assert traffic.done
    assert content(places["east"]) == content(places["west"])
    assert len(content(places["east"])) > 4
    truth = traffic.generator.truth
    assert set(traffic.clicks) == set(truth.joined) | truth.unmatched
    assert traffic.copies["east"].written == traffic.written


def test_an_event_is_complete_with_its_primary(tmp_path: Path) -> None:
    clock = iter(range(1_000_000))
    traffic = Traffic(generator(), {"east": logs(tmp_path)}, now_ns=lambda: next(clock))
    for second in range(130):
        traffic.step(second * 1_000_000)
    later = 0
    for click, query in traffic.generator.truth.joined.items():
        complete = traffic.complete_ns(click, query)
        assert complete is not None
        assert complete >= traffic.clicks[click]
        later += complete > traffic.clicks[click]
    assert later
    assert traffic.complete_ns("nobody", None) is None


def test_each_event_is_seen_once(tmp_path: Path) -> None:
    now = 10

    def line(event: str, key: str = "q") -> bytes:
        at = "decided_at" if event in ("c", "foreign") else "joined_at"
        return orjson.dumps({"event_id": event, "key": key, at: "1970-01-01T00:00:01.000002Z"}) + b"\n"

    output = tmp_path / "output"
    for kind in ("joined", "unmatched", "rejected"):
        (output / kind).mkdir(parents=True)
    follower = Follower({"east": output}, lambda event, key: 3 if event != "foreign" else None, lambda: now)
    log = output / "joined" / "s-000001.jsonl"
    log.write_bytes(line("a") + line("b")[:9])
    follower.follow()
    assert follower.verdicts == [Verdict(3, 10, True, 1_000_002_000, "a", "east")]
    now = 20
    log.write_bytes(line("a") + line("b") + line("a"))
    (output / "unmatched" / "s-000001.jsonl").write_bytes(line("c") + line("foreign"))
    (output / "rejected" / "s-000001.jsonl").write_bytes(b'{"reason":"x"}\n')
    follower.follow()
    found = [(each.event, each.seen_ns, each.joined) for each in follower.verdicts[1:]]
    assert found == [("b", 20, True), ("c", 20, False)]
    assert (follower.twice, follower.events) == (1, 4)
    assert follower.lines == {"east": {"joined": 3, "unmatched": 2, "rejected": 1}}
    (output / "joined" / "s-000001.jsonl.gz").write_bytes(gzip.compress(log.read_bytes() + line("d")))
    log.unlink()
    follower.follow()
    assert follower.events == 5
