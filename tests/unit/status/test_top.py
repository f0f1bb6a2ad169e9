"""Two looks at processes' reports become lines: rates, the highest first, restarts and silence as they are."""

from __future__ import annotations

from typing import Any

import pytest

from photon.cli import top as command
from photon.config.metrics.families import Family
from photon.fleet.look import Look
from photon.fleet.polling import Heard
from photon.fleet.processes import Process
from photon.status.view import SORTS, busiest, ordered
from tests.unit.fleet.heard import samples

JOINER = Process("east", "joiner", "east-1", "127.0.0.1:1")
DISPATCHER = Process("east", "dispatcher", "east", "127.0.0.1:2")
R1, R2 = (Process("", "registry", name, f"127.0.0.1:{port}") for name, port in (("r1", 3), ("r2", 4)))
VERIFIER = Process("east", "verifier", "east", "127.0.0.1:5")


def numbers(**values: float) -> list[Family]:
    """``name__label_value``: no labels of more words are needed here."""
    found = []
    for name, value in values.items():
        metric, *labels = name.split("__")
        found.append((metric, dict(label.split("_", 1) for label in labels), value))
    return samples(*found)


def joiner(cpu: float, joined: float, memory: float = 100.0) -> Heard:
    return Heard(
        JOINER,
        numbers(
            process_cpu_seconds_total=cpu, process_resident_memory_bytes=memory, process_start_time_seconds=50.0,
            photon_clock_seconds=80.0, photon_joiner_outcomes_total__slot_s1__outcome_joined=joined,
            photon_joiner_outcomes_total__slot_s1__outcome_retry=10.0, photon_joiner_open_ids__slot_s1=4.0,
        ),
    )  # fmt: skip


class Top:
    """Looks again and again."""

    def __init__(self) -> None:
        self._before = Look(-1.0)

    def update(self, heard: list[Heard], at_s: float) -> dict[str, Any]:
        then, self._before = self._before, Look(at_s, heard)
        return busiest(then, self._before)


def only(rows: list[dict[str, Any]]) -> dict[str, Any]:
    (row,) = rows
    return row


def test_a_process_by_its_cpu_and_rate() -> None:
    top = Top()
    first = only(top.update([joiner(5.0, 100.0)], 10.0)["processes"])
    assert (first["cpu"], first["rate_per_s"], first["memory_bytes"], first["uptime_s"]) == (None, None, 100.0, 30.0)
    said = top.update([joiner(6.0, 300.0)], 14.0)
    process, slot = only(said["processes"]), only(said["slots"])
    assert (said["window_s"], process["cpu"], process["rate_per_s"]) == (4.0, 0.25, 50.0)
    assert (slot["slot"], slot["joined_per_s"], slot["answers_per_s"], slot["open_ids"]) == ("s1", 50.0, 50.0, 4.0)


def test_a_process_that_was_restarted_or_is_silent() -> None:
    top = Top()
    top.update([joiner(500.0, 9000.0)], 10.0)
    assert only(top.update([joiner(1.0, 20.0)], 12.0)["processes"])["cpu"] == 0.5
    silent = only(top.update([Heard(JOINER, problem="refused")], 14.0)["processes"])
    assert (silent["up"], silent["cpu"], silent["problem"]) == (False, None, "refused")
    back = only(top.update([joiner(9.0, 20.0)], 16.0)["processes"])
    assert (back["up"], back["cpu"]) == (True, None)


def test_the_registry_is_shown_once_and_by_its_leader() -> None:
    def replicas(ids: float) -> list[Heard]:
        leads = numbers(
            photon_registry_leader__shard_1=1.0, photon_registry_ids__shard_1=ids,
            photon_registry_entry_ids_total__shard_1=ids, photon_registry_commit_p50_seconds__shard_1=0.01,
        )  # fmt: skip
        follows = numbers(photon_registry_leader__shard_1=0.0, photon_registry_ids__shard_1=ids - 1)
        return [Heard(R1, follows), Heard(R2, leads)]

    top = Top()
    top.update(replicas(100.0), 0.0)
    said = top.update(replicas(300.0), 2.0)
    shard = only(said["shards"])
    assert (shard["shard"], shard["leader"], shard["ids"], shard["ids_per_s"]) == (1, "r2", 300.0, 100.0)
    assert shard["commit_p50_s"] == 0.01
    assert [row["process"] for row in said["processes"]] == ["r1", "r2"]


def test_logs_and_output() -> None:
    lag = {"lag": [{"log": "c.log", "bytes": 70, "seconds": 3.0}]}
    slots = {"slots": [{"slot": "s1", "state": "live", "problem": "", "alarms": []}]}
    verifier = numbers(photon_verifier_published_bytes__slot_s1=90.0, photon_verifier_cleared_bytes__slot_s1=50.0)
    said = Top().update([Heard(DISPATCHER, (), lag), Heard(VERIFIER, verifier, slots), joiner(0.0, 0.0)], 0.0)
    assert only(said["logs"]) == {
        "datacentre": "east", "dispatcher": "east", "log": "c.log", "bytes": 70, "seconds": 3.0,
    }  # fmt: skip
    assert only(said["slots"])["uncleared_bytes"] == 40.0


def test_the_most_first_and_the_unknown_last() -> None:
    rows = [{"process": name, "cpu": cpu, "memory_bytes": 1.0, "rate_per_s": None}
            for name, cpu in (("a", 0.1), ("b", None), ("c", 0.9))]  # fmt: skip
    assert [row["process"] for row in ordered(rows, "processes", "cpu")] == ["c", "a", "b"]
    assert [row["process"] for row in ordered(rows, "processes", "name")] == ["a", "b", "c"]


@pytest.mark.parametrize("view", SORTS)
def test_every_view_is_shown_whatever_is_known(view: str) -> None:
    top = Top()
    lag = {"lag": [{"log": "c.log", "bytes": 70, "seconds": 3.0}]}
    shard = numbers(photon_registry_ids__shard_1=5.0)
    heard = [joiner(1.0, 2.0), Heard(DISPATCHER, (), lag), Heard(R1, shard), Heard(VERIFIER, problem="refused")]
    for now_s in (0.0, 1.0):
        said = top.update(heard, now_s)
        for sort in (*SORTS[view], "name"):
            assert len(command.rows_of(said, view, sort, 1).cells()) == 1
    assert command.rows_of(Top().update([], 0.0), view, "name", None).none
