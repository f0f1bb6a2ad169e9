"""Structured logs: one JSON object a line, bounded in number and in size."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
import structlog

from photon.config import log
from photon.config.log import BURST, KINDS_MAX, REFILL_S, RateLimit


class Flood:
    """Writes lines through a limit whose clock a test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.limit = RateLimit(lambda: self.now)

    def write(self, event: str, level: str = "warning", **fields: Any) -> dict[str, Any] | None:
        try:
            return dict(self.limit(None, level, {"event": event, "level": level, **fields}))
        except structlog.DropEvent:
            return None


def test_a_flood_of_one_kind_is_cut_and_counted() -> None:
    flood = Flood()
    written = [flood.write("event rejected", event_id=str(n)) for n in range(1000)]
    assert sum(each is not None for each in written) == BURST
    flood.now += REFILL_S
    told = flood.write("event rejected", event_id="x")
    assert told is not None
    assert told["left_out"] == 1000 - BURST
    assert flood.write("event rejected") is None
    flood.now += 1000 * REFILL_S
    again = [flood.write("event rejected") for _ in range(100)]
    assert sum(each is not None for each in again) == BURST
    assert again[0] == {"event": "event rejected", "level": "warning", "left_out": 1}


def test_other_kinds_and_other_levels_have_their_own_lines() -> None:
    flood = Flood()
    for _ in range(100):
        flood.write("one")
    assert flood.write("two") == {"event": "two", "level": "warning"}
    assert flood.write("one", "error") == {"event": "one", "level": "error"}
    assert flood.write("one") is None


def test_kinds_are_bounded() -> None:
    flood = Flood()
    for n in range(3 * KINDS_MAX):
        assert flood.write(f"kind {n}") is not None
    assert len(flood.limit._kinds) == KINDS_MAX


def test_a_line_is_json_with_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure(json=True)
    structlog.get_logger("x").warning("events rejected", event_id=b"c1\xff", reason="y" * 10_000, offset=7)
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["event"], line["offset"]) == ("warning", "events rejected", 7)
    assert line["event_id"] == "c1\\xff"
    assert len(line["reason"]) == log.VALUE_CHARS_MAX + 1
    assert line["timestamp"].endswith("Z")


def test_an_error_keeps_its_traceback_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure(json=True)
    try:
        raise ValueError("broken")
    except ValueError:
        structlog.get_logger("x").exception("failed")
    (line,) = capsys.readouterr().err.splitlines()
    assert "ValueError: broken" in json.loads(line)["exception"]


def test_the_readable_form(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure(json=False)
    structlog.get_logger("x").info("dispatcher serves", datacentre="east")
    said = capsys.readouterr().err
    assert "dispatcher serves" in said
    assert "datacentre=east" in said
    assert not said.startswith("{")


def test_a_full_disk_under_the_log_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr("sys.stderr", full)
        log.configure(json=True)
        for number in range(3):
            structlog.get_logger("test").warning("lost", number=number)
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())  # so that it can be closed
