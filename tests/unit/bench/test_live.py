"""Results computed from the notes of feeder and watcher."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.feeder import CLICK, QUERY, Feed, digits, plan, table
from bench.live import figures, growth
from bench.restart import first_after_s, pause_s
from bench.results import BenchmarkFailed

S = 1_000_000_000
EPOCH = 1_700_000_000_000_000
RATE = 10.0
Notes = dict[str, NDArray[np.int64]]


def _fed(count: int) -> Notes:
    at = 100 * S + np.arange(count) * S // 10
    return {
        "epoch_us": np.array(EPOCH), "wrote_ns": at, "ready_ns": at.copy(), "query": np.arange(count),
        "before": np.zeros(count, np.int64) > 0,
    }  # fmt: skip


def _seen(fed: Notes, late_ns: int) -> Notes:
    numbers = EPOCH + np.arange(len(fed["ready_ns"]))
    return {
        "numbers": numbers, "keys": EPOCH + fed["query"], "at_ns": fed["ready_ns"] + late_ns,
        "durable_numbers": numbers, "durable_at_ns": fed["ready_ns"] + 2 * late_ns,
    }  # fmt: skip


def test_latency_is_from_the_write_to_the_first_sight() -> None:
    fed = _fed(200)
    found = figures(fed, _seen(fed, 20_000_000), rate=RATE)
    assert (found["p50_ms"], found["p99_ms"], found["published_p50_ms"]) == (20.0, 20.0, 40.0)
    assert (found["lost"], found["offered_s"]) == (0, 10)
    assert abs(found["growth"]) < 0.01


def test_an_output_that_is_wrong_gives_no_figure() -> None:
    fed = _fed(200)
    doubled = {name: np.concatenate([each, each[-1:]]) for name, each in _seen(fed, 1).items()}
    with pytest.raises(BenchmarkFailed, match="1 records beyond the first"):
        figures(fed, doubled, rate=RATE)
    wrong = _seen(fed, 1)
    wrong["keys"][3] += 1
    with pytest.raises(BenchmarkFailed, match="1 clicks with another query"):
        figures(fed, wrong, rate=RATE)
    fed["ready_ns"][7] = 0
    with pytest.raises(BenchmarkFailed, match="1 clicks joined that name no query"):
        figures(fed, _seen(fed, 1), rate=RATE)


def test_clicks_that_never_came_are_counted() -> None:
    fed = _fed(200)
    seen = {name: each[:-3] for name, each in _seen(fed, 1).items()}
    assert figures(fed, seen, rate=RATE)["lost"] == 3


def test_a_backlog_grows_by_what_is_offered_and_not_joined() -> None:
    ready = np.arange(0, 60 * S, S // 100)
    assert growth(ready, ready + S) == pytest.approx(0.0, abs=0.5)
    assert growth(ready, ready * 2) == pytest.approx(50.0, rel=0.05)


def test_the_pause_is_the_longest_gap_after_a_kill() -> None:
    at = np.array([0, 1, 2, 5, 6, 60]) * S
    assert pause_s(at, 2 * S, 3.0) == 3.0
    assert first_after_s(at, 6 * S + 1) == pytest.approx(54.0)
    assert pause_s(at, 20 * S, 10.0) == 54.0
    with pytest.raises(BenchmarkFailed):
        pause_s(at, 61 * S, 10.0)


def test_a_table_of_lines_is_its_template_with_digits() -> None:
    assert digits(np.array([12])).tobytes() == b"0000000000000012"
    numbers = np.array([EPOCH, EPOCH + 1])
    lines = table(CLICK, at=numbers, percent=numbers + 5, hash=numbers).splitlines()
    assert [line.count(b"@") + line.count(b"%") + line.count(b"#") for line in lines] == [0, 0]
    assert b'"click_id":"10.7.2.13:4077:1700000000000001","query_id":"10.0.1.11:4021:1700000000000006"' in lines[1]
    assert len(table(QUERY, at=numbers, hash=numbers)) == 2 * len(QUERY)


def test_a_plan_names_queries_that_are_written_before_their_clicks_but_for_its_share() -> None:
    drawn = plan(Feed(1000.0, 20.0, "", "", ""))
    assert 0.01 < (drawn.query < 0).mean() < 0.03
    assert 0.04 < drawn.before.mean() < 0.06
    named = (drawn.query >= 0) & ~drawn.before
    assert (drawn.query[named] <= drawn.at_s[named] * 10_000 + 1e-6).all()
    assert (drawn.query[drawn.before] > drawn.at_s[drawn.before] * 10_000 + 1e-6).all()


def test_early_clicks_come_seconds_before_their_query() -> None:
    feed = Feed(100.0, 60.0, "", "", "", early=0.2)
    drawn = plan(feed)
    ahead = drawn.query / (feed.rate * feed.per_click) - drawn.at_s
    assert 0.15 < drawn.before.mean() < 0.21  # the last clicks' query would come when everything is written
    assert ahead[drawn.before].min() > 0.9
    assert 8.0 < ahead[drawn.before].max() < 10.1
    assert ahead[~drawn.before].max() <= 0.01
