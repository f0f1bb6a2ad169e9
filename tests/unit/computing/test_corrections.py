"""Old records, less ``old`` of all corrections, plus ``new``, are the new records, in any order of arrival."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import orjson
import pytest

from photon.computing import Record
from photon.computing.corrections import NEW, OLD, STREAM, corrections
from photon.computing.errors import TopologyError
from photon.computing.testkit import Step, run_topology

T_NS = 1_763_596_800_000_000_000  # 2025-11-20
HOUR_NS = 3_600_000_000_000


def _record(event: str, cents: int | None, time_ns: int = T_NS, **more: Any) -> dict[str, Any]:
    primary = None if cents is None else {"cents": cents}
    return {"event_id": event, "key": "q", "event_time_ns": time_ns, "foreign": {}, "primary": primary, **more}


def _ran(old: list[dict[str, Any]], new: list[dict[str, Any]], **options: str) -> list[dict[str, Any]]:
    topology = corrections("out", "fixed", "streams", **options)
    steps: dict[str, list[Step]] = {
        side: [*(Record(each, each["event_time_ns"], side) for each in records), T_NS + 24 * HOUR_NS]
        for side, records in ((OLD, old), (NEW, new))
    }
    return [each.value for each in run_topology(topology, steps)[STREAM]]


def test_an_event_is_replaced_withdrawn_or_added() -> None:
    old = [_record("same", 1, token="a", joined_at="1"), _record("wrong", 10), _record("void", 3)]
    new = [_record("same", 1, token="b", joined_at="2"), _record("wrong", 1), _record("missed", 4)]
    said = {each["what"]: (each.get("old"), each.get("new")) for each in _ran(old, new)}
    assert said == {"replaced": (old[1], new[1]), "withdrawn": (old[2], None), "added": (None, new[2])}


def test_equal_pairs_of_an_event_stay() -> None:
    old = [_record("e", cents, pair=n, pairs=2) for n, cents in enumerate((1, 2), 1)]
    new = [_record("e", cents, pair=n, pairs=3) for n, cents in enumerate((2, 1, 7), 1)]
    assert [(each["what"], each["new"]["primary"]) for each in _ran(old, new)] == [("added", {"cents": 7})]


def test_an_event_counts_if_one_of_its_records_is_in_the_range() -> None:
    old = [
        _record("before", 1, T_NS - HOUR_NS),
        _record("moved", 1, T_NS - HOUR_NS),
        _record("after", 1, T_NS + HOUR_NS),
    ]
    new = [_record("moved", 1, T_NS)]
    said = _ran(old, new, since="2025-11-20", until="2025-11-20T01:00")
    assert [(each["what"], each["new"]["event_id"]) for each in said] == [("replaced", "moved")]


def test_a_wrong_time_is_refused() -> None:
    with pytest.raises(TopologyError, match="2h"):
        corrections("out", "fixed", "streams", since="2h")


@pytest.mark.parametrize("seed", range(40))
def test_old_records_and_corrections_are_the_new_records(seed: int) -> None:
    rng = random.Random(seed)
    sides: dict[str, list[dict[str, Any]]] = {OLD: [], NEW: []}
    for records in sides.values():
        for event in range(20):
            records += [
                _record(f"e{event}", rng.randrange(2), T_NS + event) for _ in range(rng.choice((0, 1, 1, 1, 3)))
            ]
    # Watermarks anywhere, also ahead of records: these are late, on either side or on both
    steps: dict[str, list[Step]] = {
        side: [Record(each, each["event_time_ns"], side) for each in rng.sample(records, len(records))]
        for side, records in sides.items()
    }
    for some in steps.values():
        for _ in range(rng.randrange(4)):
            some.insert(rng.randrange(len(some) + 1), T_NS + rng.randrange(30))
        some.append(T_NS + HOUR_NS)
    stands = Counter(map(orjson.dumps, sides[OLD]))
    for each in run_topology(corrections("out", "fixed", "streams"), steps)[STREAM]:
        stands.subtract([orjson.dumps(each.value[OLD])] if OLD in each.value else [])
        stands.update([orjson.dumps(each.value[NEW])] if NEW in each.value else [])
    assert +stands == Counter(map(orjson.dumps, sides[NEW]))
    assert min(stands.values(), default=0) >= 0
