from pathlib import Path

from photon.lab.demo.feed import ROLL_US, Copy, Feed, Logs
from photon.lab.demo.generator import Generator, Line


def _logs(directory: Path) -> Logs:
    logs = Logs(directory / "queries", directory / "clicks")
    for each in (logs.primary, logs.foreign):
        each.mkdir(parents=True)
    return logs


def _files(logs: Logs) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for side in (logs.primary, logs.foreign) for path in side.iterdir()}


def test_copies_are_the_same_files_whenever_they_are_written(tmp_path: Path) -> None:
    lines = sorted(Generator(4, clicks=300, seconds=9).lines(), key=lambda line: line.at_us)
    early, late = (Copy(lines, _logs(tmp_path / name)) for name in ("early", "late"))
    for now in range(0, 20_000_000, 130_000):
        early.write_due(now)
    late.write_due(30_000_000)
    assert early.done
    assert late.done
    one, two = (_files(Logs(tmp_path / name / "queries", tmp_path / name / "clicks")) for name in ("early", "late"))
    assert one == two
    assert len(one) > 2


def test_a_held_copy_gets_what_was_due_at_once_afterwards(tmp_path: Path) -> None:
    lines = [Line(at, True, b"x%d\n" % at) for at in (0, 10, ROLL_US + 5)]
    logs = _logs(tmp_path)
    copy = Copy(lines, logs, lag_us=3)
    copy.held = True
    assert not copy.write_due(ROLL_US)
    copy.held = False
    assert [line.at_us for line in copy.write_due(ROLL_US + 7)] == [0, 10]
    assert [line.at_us for line in copy.write_due(ROLL_US + 8)] == [ROLL_US + 5]
    assert _files(logs) == {"queries-0000.log": b"x0\nx10\n", "queries-0001.log": b"x%d\n" % (ROLL_US + 5)}


async def test_the_feed_notes_the_first_arrival_of_each_click_and_ends(tmp_path: Path) -> None:
    generator = Generator(2, clicks=50, seconds=0.2)
    lines = sorted(generator.lines(), key=lambda line: line.at_us)
    short = [line for line in lines if line.at_us < 200_000]
    feed = Feed(short, {name: _logs(tmp_path / name) for name in ("east", "west")})
    await feed.run()
    assert feed.written == len(short)
    clicks = {line.data for line in short if not line.primary}
    assert set(feed.arrived_ns) == {c for c, record in generator.truth.clicks.items() if record + b"\n" in clicks}
