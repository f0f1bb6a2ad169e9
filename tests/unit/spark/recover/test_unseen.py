"""Slots whose outputs cannot have been examined, and the messages about them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from photon.config.disk import RealDisk
from photon.idregistry.witness import KnownSlot, WitnessLog
from photon.outputs.log.format import slot_of
from photon.outputs.output_places import OutputPlace
from photon.spark.recover.journal import UnseenSlots
from photon.spark.recover.unseen import (
    GONE,
    RETIRE,
    SeenOutputs,
    SeenSlot,
    grouped,
    line_of,
    seen_slots,
)
from photon.spark.sources import EVER, TimeRange

NAMES = ("joined/east-1-000001.jsonl", "joined/east-1-000002.jsonl", "unmatched/east-1-000001.jsonl")
HOUR_NS = 3_600_000_000_000


def known(name: str, datacentre: str, *, retired: bool = False, length: int = 10) -> KnownSlot:
    return KnownSlot(name, datacentre, "", 1, 1, retired, (WitnessLog(1, length),))


def site(directory: Path) -> OutputPlace:
    """Two final joined files, of hours 1 and 2, and a growing unmatched one."""
    place = OutputPlace(directory / "output", directory / "state")
    state = place.state / "slots" / "east-1"
    state.mkdir(parents=True)
    final = [
        {
            "version": 1,
            "file": f"{name}.gz",
            "uncompressed_bytes": 5,
            "first_ns": at * HOUR_NS,
            "last_ns": at * HOUR_NS,
        }
        for at, name in enumerate(NAMES[:2], 1)
    ]
    (state / "manifest.jsonl").write_text("".join(json.dumps(each) + "\n" for each in final))
    (state / "durable.json").write_text(json.dumps({"version": 1, "slot": "east-1", "files": {NAMES[2]: 5}}))
    for name in (*(f"{name}.gz" for name in NAMES[:2]), NAMES[2]):
        (place.output / name).parent.mkdir(parents=True, exist_ok=True)
        (place.output / name).write_bytes(b"x")
    return place


def seen(place: OutputPlace, window: TimeRange = EVER) -> SeenSlot:
    [(name, found)] = seen_slots(RealDisk(), place, window).items()
    assert name == "east-1"
    return found


def test_files_of_the_range_are_counted(tmp_path: Path) -> None:
    place = site(tmp_path)
    whole = SeenSlot(3, 0, str(place.output), False)
    assert seen(place) == whole
    (place.output / f"{NAMES[0]}.gz").unlink()
    assert seen(place) == replace(whole, missing=1)
    # The growing file tells no hours: it may be of any.
    assert seen(place, TimeRange(begin_ns=2 * HOUR_NS, end_ns=3 * HOUR_NS)) == replace(whole, published=2)
    for path in list(place.output.glob("*/*")):
        path.unlink()
    assert seen(place) == replace(whole, missing=3, empty=True)


def test_an_empty_or_missing_output_directory(tmp_path: Path) -> None:
    place = site(tmp_path)
    place.output.rename(tmp_path / "elsewhere")
    assert seen(place).empty
    place.output.mkdir()
    outputs = SeenOutputs("p.toml", {"east": {"east-1": seen(place)}}, {"east": "state"}, {})
    why = outputs.why("east", "east-1")
    assert why is not None
    assert (why.gone, why.do) == (GONE, "mount it")
    assert str(place.output) in why.seen
    assert replace(outputs, gone=("east-1",)).why("east", "east-1") is None


@pytest.mark.parametrize(
    ("published", "missing", "refused"), [(3, 0, False), (3, 2, False), (3, 3, True), (2, 2, True), (1, 1, False)]
)
def test_all_of_several_files_are_missing(published: int, missing: int, refused: bool) -> None:
    slot = SeenSlot(published, missing, "out", False)
    outputs = SeenOutputs("p.toml", {"east": {"east-1": slot}}, {"east": "state/slots"}, {})
    assert (outputs.why("east", "east-1") is not None) == refused


def test_what_the_file_does_not_name_is_refused_until_its_slot_is_retired() -> None:
    slots = {"west-1": known("west-1", "west"), "west-2": known("west-2", "west", length=0)}
    outputs = SeenOutputs("p.toml", {"east": {}}, {"east": "state"}, slots, gone=("west-1",))
    why = outputs.why("west", "west-1")
    assert why is not None
    assert why.gone == RETIRE, "its files cannot be called gone by a flag"
    assert outputs.others() == [("west", "west-1", why)], "one that has written nothing hides nothing"
    retired = replace(outputs, known={"west-1": known("west-1", "west", retired=True)})
    assert retired.why("west", "west-1") is None
    assert retired.others() == []
    unmounted = outputs.why("east", "east-9")
    assert unmounted is not None
    assert unmounted.gone == RETIRE


def test_one_line_names_all_slots_of_a_datacentre() -> None:
    outputs = SeenOutputs("p.toml", {}, {}, {})
    why = outputs.why("west", "west-1")
    assert why is not None
    [told] = grouped({("west", why, False): {"west-2": 242, "west-1": 1_000}})
    assert told == UnseenSlots("west", {"west-2": 242, "west-1": 1_000}, 1_242, *why)
    assert line_of(told, "p.toml") == (
        "1,242 events belong to slots west-1, west-2 of datacentre west, which p.toml does not name: add it to "
        "the file again, or, if the disk is gone permanently, photon slot retire west-1 --config p.toml; "
        "photon slot retire west-2 --config p.toml"
    )
    [perhaps] = grouped({("west", why, True): {"west-2": 7, "west-1": 7}})
    assert perhaps.events == 7, "nobody knows which of the two has them"
    assert line_of(perhaps, "p.toml").startswith("7 events may belong to slots west-1, west-2 of")


def test_the_slot_of_a_file() -> None:
    assert slot_of("joined/east-1-000003.jsonl") == "east-1"
