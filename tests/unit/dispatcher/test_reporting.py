"""Troubles: one line when they last, one when they are over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from photon.batch.events import Events
from photon.dispatcher.events import Retimed
from photon.dispatcher.reporting import CALM_S, LASTS_S, Troubles, tell_given_up, tell_retimed
from photon.idregistry.api import Kind
from photon.joiner.api import JoinAnswers, Outcome
from tests.unit.dispatcher.test_state import item
from tests.unit.joiner.told import answers_of


class Lines:
    def __init__(self) -> None:
        self.said: list[str] = []

    def warning(self, line: str, **_: Any) -> None:
        self.said.append(line)

    info = warning


@pytest.fixture
def lines() -> Lines:
    return Lines()


def test_an_id_with_two_event_times_is_told_with_both_places() -> None:
    with structlog.testing.capture_logs() as told:
        by = 1_760_000_000_000_001_000, "west", Kind.JOINED, 0x30000000002
        found = Retimed(b"c1", "clicks/b.jsonl", 120, 1_760_086_400_000_000_000, *by)
        tell_retimed(structlog.get_logger(), found, 3)
    (line,) = told
    assert (line["event_id"], line["log"], line["offset"], line["lines"]) == (b"c1", "clicks/b.jsonl", 120, 3)
    assert line["event_time"] == "2025-10-10T08:53:20.000000Z"
    assert line["registered_with"] == "2025-10-09T08:53:20.000001Z"
    assert (line["registered_by"], line["verdict"], line["token"]) == ("west", "joined", "0000030000000002")


def test_what_is_soon_over_is_not_said(lines: Lines) -> None:
    troubles = Troubles(lines)
    troubles.met("store", "starts", 0.0)
    troubles.met("store", "starts", LASTS_S / 2)
    troubles.well("store", LASTS_S / 2 + CALM_S)
    troubles.met("store", "again", LASTS_S + CALM_S)
    assert lines.said == []


def test_what_lasts_is_said_once_and_its_end_once(lines: Lines) -> None:
    troubles = Troubles(lines)
    for at in range(30):
        troubles.met("store", "away", float(at))
    assert lines.said == ["store: problem"]
    troubles.well("store", 29.0 + CALM_S / 2)
    assert len(lines.said) == 1
    troubles.well("store", 29.0 + CALM_S)
    troubles.well("store", 50.0 + CALM_S)
    assert lines.said == ["store: problem", "store: problem solved"]


def test_one_shard_of_many_is_a_trouble_that_lasts(lines: Lines) -> None:
    troubles = Troubles(lines)
    for at in range(20):
        troubles.met("registry", "no leader", float(at))
        troubles.well("registry", at + 0.5)
    assert lines.said == ["registry: problem"]


def test_two_short_ones_far_apart_are_not_one_that_lasts(lines: Lines) -> None:
    troubles = Troubles(lines)
    troubles.met("store", "starts", 0.0)
    troubles.well("store", 1.0)
    troubles.met("store", "starts", 100.0)
    assert lines.said == []


def test_the_first_of_the_events_that_are_given_up_is_named() -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    log = SimpleNamespace(info=lambda what, **fields: told.append((what, fields)))
    events = Events.of(item(n).event for n in range(1, 5))
    outcomes = [Outcome.JOINED, Outcome.REJECTED, Outcome.LATE, Outcome.REJECTED]
    tell_given_up(log, events, answers_of(outcomes, reasons={1: "no such field"}))
    assert told == [
        ("events rejected", {"event_id": b"id2", "log": "f0", "offset": 2, "reason": "no such field", "events": 2}),
        ("events come late", {"event_id": b"id3", "log": "f1", "offset": 3, "reason": None, "events": 1}),
    ]
    tell_given_up(log, events, JoinAnswers.alike(4, Outcome.JOINED))
    assert len(told) == 2
