"""What is shipped ends with all records of an event."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.config.disk import RealDisk
from photon.joiner.copies import shipping
from photon.joiner.copies.shipping import CannotShip, LocalOutput


def pair(event: str, number: int, of: int) -> bytes:
    return b'{"event_id":"%b","pair":%d,"pairs":%d}\n' % (event.encode(), number, of)


LINES = [pair("a", 1, 1), *(pair("b", at, 3) for at in (1, 2, 3)), b'{"event_id":"c","key":"k"}\n', pair("d", 1, 1)]
EVENTS = [LINES[0], b"".join(LINES[1:4]), LINES[4], LINES[5]]


def output(base: Path, lines: list[bytes]) -> LocalOutput:
    (base / "log").write_bytes(b"".join(lines))
    return LocalOutput(RealDisk(), base, lambda log, number: "log")


@pytest.mark.parametrize("wanted", [1, 50, 100, 150, 1000])
def test_each_part_is_whole_events(tmp_path: Path, wanted: int) -> None:
    local, end, at = output(tmp_path, LINES), sum(map(len, LINES)), 0
    parts = []
    while at < end:
        parts.append(local._lines(0, 1, at, min(wanted, end - at), end))
        at += len(parts[-1])
    starts = {sum(map(len, EVENTS[:n])) for n in range(len(EVENTS) + 1)}
    assert b"".join(parts) == b"".join(LINES)
    assert all(sum(map(len, parts[:n])) in starts for n in range(len(parts)))


def test_an_event_that_no_message_takes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "LINE_BYTES_MAX", 60)
    local = output(tmp_path, LINES[1:])
    with pytest.raises(CannotShip, match="no event's records end from byte 0 on"):
        local._lines(0, 1, 0, 10, sum(map(len, LINES[1:])))


def test_a_part_never_begins_within_an_event(tmp_path: Path) -> None:
    local = output(tmp_path, LINES[2:3])
    with pytest.raises(CannotShip, match="no event's records end from byte 0 on"):
        local._lines(0, 1, 0, len(LINES[2]), len(LINES[2]))
