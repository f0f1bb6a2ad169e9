"""Contents of status.json, from processes' reports, and the points for the charts."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from photon.config.metrics.histogram import Histogram
from photon.config.metrics.readings import Readings
from photon.fleet.look import Look
from photon.fleet.numbers import merged_ledger
from photon.fleet.polling import Heard
from photon.status.parts import overview
from photon.status.view import COARSE_S, EVERY_S, POINTS, History, Point, View, together
from tests.unit.fleet.heard import said, samples, silent

LEDGER = {"read": 900, "joined": 800, "pending": 100}


def _dispatcher(read: int, joined: int, times: Histogram) -> Any:
    def put(into: Readings) -> None:
        into.put("photon_dispatcher_read_total", read, join="j")
        into.put("photon_dispatcher_events_total", joined, join="j", verdict="joined")
        into.put("photon_dispatcher_lag_seconds", 3, join="j")
        into.put("photon_dispatcher_pending_events", read - joined, join="j")
        into.put_histogram("photon_dispatcher_join_seconds", times, join="j")

    return put


def _replica(leads: int, *shards: tuple[int, int]) -> Any:
    def put(into: Readings) -> None:
        for shard, ids in shards:
            into.put("photon_registry_ids", ids, shard=str(shard))
            into.put("photon_registry_id_bytes", ids * 48, shard=str(shard))
            into.put("photon_registry_leader", shard == leads, shard=str(shard))

    return put


def _without_a_log(into: Readings) -> None:
    into.put("photon_eventstore_missing_logs", 1, join="j")
    into.put("photon_eventstore_missing_keys", 2, join="j")


def _heard(read: int, joined: int, times: Histogram) -> list[Heard]:
    shards = [{"shard": n, "leader": "", "ids": 0, "boundary_s": None} for n in (1, 2)]
    slots = [
        {"slot": "e1", "state": "live", "problem": "", "alarms": [{"finding": "torn", "what": "w", "todo": "t"}]}
    ]
    details = {"total": LEDGER, "ledger": [], "unbalanced_hours": 1, "lag": [{"log": "a", "bytes": 1, "seconds": 3}]}
    details["adapter"] = "clicks 2.0: Clicks 0123456789ab"
    return [
        said("dispatcher", "w1", _dispatcher(read, joined, times), details),
        said("dispatcher", "w2", _dispatcher(read, joined, Histogram())),
        said("verifier", "east", details={"slots": slots}),
        said("registry", "r1", _replica(1, (1, 10), (2, 20)), {"config": 2, "shards": shards}),
        said("registry", "r2", _replica(2, (1, 10), (2, 21)), {"config": 1, "shards": shards[:1]}),
        said("eventstore", "east", _without_a_log),
        silent("joiner", "e1"),
    ]


def text(said: dict[str, Any], now_s: float) -> str:
    """The overview; a table's cells with one space between them."""
    shown = []
    for each in overview([said], now_s):
        shown += [each] if isinstance(each, str) else [" ".join(cells) for cells in each.cells()]
    return "\n".join(shown)


def _twice() -> dict[str, Any]:
    view, times = View("east", "1.0"), Histogram()
    view.update(Look(100.0, _heard(1000, 900, times)))
    times.add(np.full(100, 2_000_000_000, np.int64))
    return view.update(Look(120.0, _heard(3000, 2900, times)))


def test_rates_are_of_the_last_window_and_counts_of_dispatchers_add_up() -> None:
    found = _twice()
    assert (found["window_s"], found["flow"]["read_per_s"]) == (20, 200)
    assert (found["flow"]["verdicts_per_s"]["joined"], found["flow"]["pending"]) == (200, 200)
    assert found["latency"]["join"]["count"] == 100
    assert 1.0 < found["latency"]["join"]["p50_s"] <= 2.5
    assert found["latency"]["join"]["within"] == {"1": 0.0, "10": 1.0, "60": 1.0}
    assert found["ledger"]["total"] == LEDGER
    assert len(found["history"]) == 1
    orjson.dumps(found)


def test_the_ledger_is_the_sum_over_dispatchers() -> None:
    ledgers = [
        {"total": {"read": 3, "joined": 3}, "ledger": [{"hour_s": 7200, "read": 3}], "unbalanced_hours": 1},
        {},
        {"total": {"read": 4}, "ledger": [{"hour_s": None, "read": 1}, {"hour_s": 7200, "read": 2}]},
    ]
    assert merged_ledger(ledgers) == {
        "total": {"read": 7, "joined": 3},
        "ledger": [{"hour_s": 7200, "read": 5}, {"hour_s": None, "read": 1}],
        "unbalanced_hours": 1,
    }


def test_every_field_is_explained() -> None:
    page = (Path(__file__).parents[3] / "docs" / "watching.md").read_text()
    named = re.findall(r"`(\w+)`", "".join(line for line in page.splitlines() if line.startswith("|")))
    assert _twice().keys() <= set(named)


def test_rates_are_unknown_at_first() -> None:
    found = View("east", "1.0").update(Look(100.0, _heard(10, 10, Histogram())))
    assert found["flow"]["read_per_s"] is None
    assert found["history"] == []


def test_shards_are_those_of_the_newest_config_with_their_leaders() -> None:
    registry = _twice()["registry"]
    assert (registry["replicas"], registry["replicas_up"], registry["config"]) == (2, 2, 2)
    assert [(s["shard"], s["leader"], s["ids"], s["bytes"]) for s in registry["shards"]] == [
        (1, "r1", 10, 480),
        (2, "r2", 21, 1008),
    ]


def test_alarms_are_of_all_parts() -> None:
    found = {(alarm["where"], alarm["what"]) for alarm in _twice()["alarms"]}
    assert ("joiner e1", "does not answer: UNAVAILABLE") in found
    assert ("slot e1", "torn: w") in found
    assert ("event store", "2 keys wait for 1 primary log that cannot be read") in found
    assert ("dispatcher w1", "the ledger of 1 hour does not balance") in found


def test_an_empty_deployment_is_no_error() -> None:
    view = View("east", "1.0")
    found = [view.update(Look(at, [silent("dispatcher", "east")])) for at in (1.0, 2.0, 2.0, 1.0)][-1]
    assert found["ledger"] == {"total": {}, "hours": [], "unbalanced_hours": 0}
    assert "0 of 1 processes answer" in text(found, 1.0)


def test_the_terminal_shows_rates_queues_shards_and_alarms() -> None:
    shown = text(_twice(), 120.0)
    for words in (
        "east: 6 of 7 processes",
        "joined    200/s",
        "200 events pending",
        "\n2 r2 21 1,008 B",
        "alarms: 4",
    ):
        assert words in shown, shown
    assert "adapter   clicks 2.0: Clicks 0123456789ab\n" in shown


def _joiner(slot: str, behind: float, bypassed: bool) -> Any:
    def put(into: Readings) -> None:
        into.put("photon_joiner_copy_behind_bytes", behind, join="j", slot=slot)
        into.put("photon_joiner_copy_bypassed", bypassed, join="j", slot=slot)

    return put


def test_copies_are_those_of_the_joiners_that_have_one() -> None:
    heard = [
        said("joiner", "e1", _joiner("e1", 0, False), {"copies": [{"slot": "e1", "trouble": ""}]}),
        said("joiner", "e2", _joiner("e2", 2048, False), {"copies": [{"slot": "e2", "trouble": ""}]}),
        said("joiner", "e3", _joiner("e3", 9, True), {"copies": [{"slot": "e3", "trouble": "other bytes"}]}),
        said("joiner", "e4"),
    ]
    found = View("east", "1.0").update(Look(100.0, heard))
    assert [(copy["slot"], copy["state"], copy["behind_bytes"]) for copy in found["copies"]] == [
        ("e1", "holds all", 0),
        ("e2", "catching up", 2048),
        ("e3", "shown without a copy; cannot be updated: other bytes", 9),
    ]
    assert [alarm["where"] for alarm in found["alarms"]] == ["copy of e3"]
    assert "1 of 3 slots have their whole output copied, 2.0 KiB behind, 1 shown without a copy" in text(found, 100)


def test_other_datacentres_are_seen_by_what_becomes_of_the_events_left_to_them() -> None:
    def put(trusted: bool, elsewhere: int) -> Any:
        def into(readings: Readings) -> None:
            readings.put("photon_dispatcher_home_trusted", trusted, join="j", home="west")
            readings.put("photon_dispatcher_events_total", elsewhere, join="j", verdict="elsewhere")

        return into

    view = View("east", "1.0", ["west"])
    first = view.update(Look(90.0, [silent("dispatcher", "east")]))["others"]
    assert [(one["datacentre"], one["trusted"]) for one in first] == [("west", None)]
    view.update(Look(100.0, [said("dispatcher", "east", put(True, 100))]))
    (other,) = view.update(Look(110.0, [said("dispatcher", "east", put(False, 300))]))["others"]
    assert (other["trusted"], other["joined_per_s"]) == (False, 20.0)


def test_the_oldest_pending_events_of_all_dispatchers_are_shown() -> None:
    def row(offset: int, age_s: float) -> dict[str, Any]:
        return {"event_id": f"e{offset}", "log": "a", "offset": offset, "age_s": age_s}

    heard = [
        said("dispatcher", "w1", details={"oldest": [row(n, 100 - n) for n in range(0, 30, 2)]}),
        said("dispatcher", "w2", details={"oldest": [row(n, 100 - n) for n in range(1, 30, 2)]}),
    ]
    found = View("east", "1.0").update(Look(100.0, heard))["oldest"]
    assert [one["offset"] for one in found] == list(range(20))


def test_computations_are_shown_by_stage_with_what_they_want() -> None:
    stage = {"stage": 1, "computation": "Spend", "watermark": "2026-11-24T10:00:00Z", "lag_s": 1.5, "waiting": 12}
    row = {
        "compute": "spend", "running": True, "problem": "", "intervals": 2, "processes": 2, "records_per_s": 20.0,
        "late": 1, "aside": 3, "published": 9, "stages": [stage], "alarms": [{"what": "w", "todo": "t"}],
    }  # fmt: skip
    ended = {**row, "compute": "total", "running": False, "problem": "total.py, line 3: NameError", "stages": []}
    heard = [said("compute", each["compute"], details={"computing": each}) for each in (row, ended)]
    found = View("east", "1.0").update(Look(100.0, [*heard, silent("compute", "gone")]))
    assert found["computations"] == [row, ended]
    assert [alarm["where"] for alarm in found["alarms"]] == ["compute spend", "compute total", "compute gone"]
    shown = text(found, 100.0)
    assert "\nspend 1 Spend 2026-11-24T10:00:00Z 1.5 s 12 20/s 1 3 9 2 for 2 intervals w\n" in shown
    assert "\ntotal - - - - 20/s 1 3 9 2 for 2 intervals total.py, line 3: NameError\n" in shown


def _observers(dirty_s: float, up: bool = True) -> Any:
    def put(into: Readings) -> None:
        into.put_all("photon_tables", {"observed_total": 10, "dirty_cells": 7, "oldest_dirty_seconds": dirty_s})
        into.put_all("photon_tables", {"store_up": up, "conflicts_total": 2, "observers_failed_total": 0})

    return put


def _oracle(leads: bool) -> Any:
    return lambda into: into.put_all("photon_oracle", {"leader": leads, "timestamps_total": 500})


def test_tables_are_those_of_observers_and_the_oracle() -> None:
    assert _twice()["tables"] is None
    heard = [
        said("registry", "r1", _oracle(False)),
        said("registry", "r2", _oracle(True)),
        said("observe", "dedup-1", _observers(3.0), {"observers": ["count", "cluster"]}),
        said("observe", "dedup-2", _observers(4.0), {"observers": ["count", "cluster"]}),
        silent("observe", "dedup-3"),
    ]
    view = View("east", "1.0")
    view.update(Look(100.0, heard))
    found = view.update(Look(110.0, heard))
    tables = found["tables"]
    assert (tables["observers"], tables["processes"], tables["up"]) == (["cluster", "count"], 3, 2)
    assert (tables["dirty_cells"], tables["oldest_dirty_s"], tables["stores_silent"]) == (7, 4.0, 0)
    assert tables["oracle"] == {"replicas": 2, "leader": "r2", "timestamps_per_s": 0.0}
    assert [alarm["where"] for alarm in found["alarms"]] == ["observe dedup-3"]
    shown = text(found, 110.0)
    assert "  observers 2 of 3 processes answer: cluster, count\n  runs      0/s, 0/s conflicts" in shown
    assert "  changes   7 cells wait, the oldest for 4 s\n  oracle    led by r2, 0/s timestamps" in shown


def test_tables_that_stand_still_are_alarms() -> None:
    heard = [
        said("registry", "r1", _oracle(False)),
        said("observe", "dedup-1", _observers(200.0, up=False), {"observers": ["count"], "problem": "no server"}),
    ]
    alarms = {alarm["where"]: alarm["what"] for alarm in View("east", "1.0").update(Look(100.0, heard))["alarms"]}
    assert alarms == {
        "oracle": "no replica leads the timestamp oracle, so transactions wait",
        "observe dedup-1": "the store does not answer: no server",
        "observers": "7 cells wait for observers, the oldest for 200 s",
    }


def test_a_restarted_process_goes_on_from_what_it_kept_and_its_rate_is_of_what_it_did_since() -> None:
    """Its counts come from its disk: less than it had last reported, or all at once after it was silent."""

    def rate(joined: int, began: float, at_s: float) -> Any:
        events = ("photon_dispatcher_events_total", {"join": "j", "verdict": "joined"}, joined)
        families = samples(events, ("process_start_time_seconds", {}, began))
        heard = replace(said("dispatcher", "east"), families=families)
        return view.update(Look(at_s, [heard]))["flow"]["verdicts_per_s"]["joined"]

    view = View("east", "1.0")
    rate(200_000, 1.0, 100.0)
    assert rate(200_250, 1.0, 110.0) == 25.0
    assert rate(200_100, 111.0, 112.0) is None
    assert rate(200_200, 111.0, 116.0) == 25.0
    view.update(Look(120.0, [silent("dispatcher", "east")]))
    assert rate(200_150, 121.0, 122.0) is None
    assert rate(200_250, 121.0, 126.0) == 25.0


def point(at_s: float, **values: float | None) -> Point:
    names = ("read_per_s", "joined_per_s", "p50_s", "p90_s", "p99_s", "age_p50_s", "age_p99_s", "hit_ratio")
    return Point(**{"at_s": at_s, **dict.fromkeys(names), "lag_s": 0.0, "pending": 0.0} | values)  # type: ignore[arg-type]


def test_a_day_is_kept_in_coarse_points_and_a_quarter_of_an_hour_in_fine_ones() -> None:
    history, now = History(), 0.0
    for n in range(int(100_000 / EVERY_S)):
        now = n * EVERY_S
        assert history.due(now)
        history.add(point(now, read_per_s=float(n % 96)))
        assert not history.due(now + 1)
    found = history.as_json()
    fine, coarse = found["history"], found["day"]
    assert (len(fine), fine[-1]["at_s"]) == (POINTS, now)
    assert POINTS <= len(coarse) <= POINTS + 1
    assert coarse[-1]["at_s"] == now
    steps = {round(b["at_s"] - a["at_s"]) for a, b in itertools.pairwise(coarse)}  # type: ignore[operator]
    assert max(steps) == COARSE_S
    assert coarse[3]["read_per_s"] == 47.5


def test_of_what_went_wrong_the_worst_is_kept_and_of_the_rest_the_mean() -> None:
    found = together([point(1.0, p50_s=1.0, p99_s=1.0, lag_s=5.0), point(2.0, p50_s=3.0, p99_s=9.0), point(3.0)])
    assert (found.at_s, found.p50_s, found.p99_s, found.lag_s, found.hit_ratio) == (3.0, 2.0, 9.0, 5.0, None)


def test_a_clock_that_goes_back_begins_anew() -> None:
    history = History()
    history.add(point(1000.0))
    assert history.due(10.0)
    history.add(point(10.0))
    assert [each["at_s"] for each in history.as_json()["history"]] == [1000.0, 10.0]
