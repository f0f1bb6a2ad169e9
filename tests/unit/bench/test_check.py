"""Findings of the check of an output, whoever wrote it."""

from __future__ import annotations

import orjson
import pytest

from bench.check import Verdict, check, of_peer, of_photon
from bench.workload import digest

CLICK, QUERY = {"click_id": "c1", "query_id": "q1", "cost": 7}, {"query_id": "q1", "bid": 0.25}
TRUTH = {"c1": digest(CLICK, QUERY), "c2": digest({"click_id": "c2", "query_id": "q1"}, QUERY)}


def _line(click: object, query: object) -> bytes:
    return orjson.dumps({"click": click, "query": query}) + b"\n"


BOTH = [_line(CLICK, QUERY), _line({"query_id": "q1", "click_id": "c2"}, QUERY)]


def test_each_click_once_with_its_query_is_right_in_whatever_order_members_stand() -> None:
    assert check(BOTH, TRUTH, of_peer) == Verdict(right=2)
    assert check([orjson.dumps({"foreign": CLICK, "primary": QUERY})], {"c1": TRUTH["c1"]}, of_photon).problems == ""


@pytest.mark.parametrize(
    ("lines", "problems"),
    [
        (BOTH[:1], "1 lost"),
        ([*BOTH, BOTH[0]], "1 doubled"),
        ([_line(CLICK, {**QUERY, "bid": 0.5}), BOTH[1]], "1 wrong"),
        ([_line({**CLICK, "cost": None}, QUERY), BOTH[1]], "1 wrong"),
        ([*BOTH, _line({"click_id": "c3", "query_id": "q1"}, QUERY)], "1 invented"),
        ([*BOTH, b'{"click": {"click_id": "c1", "que'], "1 unreadable"),
        ([*BOTH, b"[]\n"], "1 unreadable"),
    ],
)
def test_what_is_wrong_is_counted_by_its_kind(lines: list[bytes], problems: str) -> None:
    assert check(lines, TRUTH, of_peer).problems == problems
