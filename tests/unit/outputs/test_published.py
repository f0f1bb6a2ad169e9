"""A slot's published files, examined while they change."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.outputs import OutputFile, OutputPlace, PublishedDamaged, read_slot, retired_bytes, slot_states
from photon.outputs.published import SlotListing
from tests.unit.outputs.helpers import MeddlingDisk, WrittenSlot, lines
from tests.unit.refusals import one_line

DISK = RealDisk()


def told(files: tuple[OutputFile, ...]) -> list[tuple[int, int, bool, bool]]:
    return [(file.number, file.length, file.closed, file.final) for file in files]


@pytest.mark.parametrize("compressed", [False, True])
def test_growing_rolled_and_final_files(tmp_path: Path, *, compressed: bool) -> None:
    slot = WrittenSlot(tmp_path)
    assert read_slot(DISK, slot.state).files == ()
    for number, size in ((1, 3), (2, 5), (3, 7)):
        slot.append(number, b"x" * (size - 1) + b"\n")
    slot.append(3, b"not published\n", publish=False)
    slot.append(1, b"u\n", "unmatched")
    slot.roll(2)
    slot.finish(1, compressed=compressed)
    found = read_slot(DISK, slot.state)
    assert found.slot == "s0"
    assert [file.compressed for file in found.files] == [compressed, False, False, False]
    assert told(found.of("joined")) == [(1, 3, True, True), (2, 5, True, False), (3, 7, False, False)]
    assert told(found.of("unmatched")) == [(1, 2, False, False)]


def test_numbers_count_as_numbers(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path, "a-000007")
    for number in (1000000, 999999, 2):
        slot.append(number, b"x\n")
    assert [file.number for file in read_slot(DISK, slot.state).files] == [2, 999999, 1000000]


def test_slots_that_share_an_output_are_told_apart(tmp_path: Path) -> None:
    one, other = WrittenSlot(tmp_path, "s"), WrittenSlot(tmp_path, "s-000001")
    one.append(1, b"one\n")
    other.append(1, b"other\n")
    exported = WrittenSlot(tmp_path, "dispatcher", directory="exports")
    exported.append(1, b"late\n", "late")
    (one.place.state / "slots" / "never-began").mkdir()
    assert slot_states(DISK, one.place.state / "slots") == [one.state, other.state]
    assert slot_states(DISK, tmp_path / "none") == []
    found = {slot.slot: [file.name for file in slot.files] for slot in one.place.published(DISK)}
    own = {"s": ["joined/s-000001.jsonl"], "s-000001": ["joined/s-000001-000001.jsonl"]}
    assert found == own | {"dispatcher": ["late/dispatcher-000001.jsonl"]}


def with_one(base: Path) -> WrittenSlot:
    """A slot with a rolled file."""
    slot = WrittenSlot(base)
    slot.append(1, b"abc\n")
    slot.roll(1)
    return slot


@pytest.mark.parametrize(("compressed", "stop"), [*((True, n) for n in range(5)), *((False, n) for n in range(3))])
def test_each_step_of_becoming_final_shows_the_same_bytes(tmp_path: Path, compressed: bool, stop: int) -> None:
    slot = with_one(tmp_path)
    lists = partial(slot.list, compressed=compressed)
    steps = (slot.compress, lists, slot.remove, slot.forget) if compressed else (lists, slot.forget)
    for step in steps[:stop]:
        step(1)
    [file] = read_slot(DISK, slot.state).files
    assert (file.number, file.length, file.closed) == (1, 4, True)


def test_a_file_that_becomes_final_between_the_looks(tmp_path: Path) -> None:
    """durable.json is read with the file in it, or without it: either way the file is reported, with its whole
    length."""
    for name in ("durable.json", "manifest.jsonl"):
        slot = WrittenSlot(tmp_path / name)
        for number in (1, 2):
            slot.append(number, b"abc\n")
            slot.roll(number)
        slot.finish(1)

        def becomes_final(slot: WrittenSlot = slot) -> None:
            slot.append(2, b"more\n")
            slot.finish(2)

        found = read_slot(MeddlingDisk(name, [becomes_final]), slot.state)
        assert told(found.files) == [(1, 4, True, True), (2, 9, True, True)]


def test_no_file_slips_through_between_the_looks(tmp_path: Path) -> None:
    """An old look at durable.json and a new one at the manifest would show file 3 without file 2, which is in trouble
    and stays plain: a reader would continue in 3 and never see 2."""
    slot = with_one(tmp_path)
    slot.finish(1)

    def meanwhile() -> None:
        for number in (2, 3):
            slot.append(number, b"abc\n")
            slot.roll(number)
        slot.finish(3)

    found = read_slot(MeddlingDisk("durable.json", [meanwhile]), slot.state)
    assert [file.number for file in found.files] == [1, 2, 3]


def test_a_torn_line_of_the_manifest_is_not_relied_on(tmp_path: Path) -> None:
    slot = with_one(tmp_path)
    slot.list(1)
    manifest = slot.state / "manifest.jsonl"
    whole = manifest.read_bytes()
    listing = SlotListing(DISK, slot.state)
    for size in (*range(len(whole)), 0, len(whole), 3, len(whole)):  # it may grow, and lose its end with the power
        manifest.write_bytes(whole[:size])
        [file] = listing.look().files
        assert (file.length, file.final) == (4, size == len(whole))
        assert [file] == list(read_slot(DISK, slot.state).files)


def test_what_was_read_is_not_told_of_again(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path)
    listing = SlotListing(DISK, slot.state, kinds=("joined",))
    for number in range(1, 6):
        slot.append(number, b"abc\n")
        slot.append(number, b"abc\n", "unmatched")
        slot.roll(number)
        slot.finish(number)
        listing.forget("joined", number - 1)
        assert [file.name for file in listing.look().files] == [slot.name(n) for n in (number - 1, number) if n]


def test_the_manifest_may_tell_event_times(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path)
    for number in (1, 2):
        slot.final(number, b"abc\n")
    manifest = slot.state / "manifest.jsonl"
    old, new = manifest.read_bytes().splitlines(keepends=True)
    manifest.write_bytes(old + new.replace(b'"version":1', b'"version":1,"first_ns":-5,"last_ns":7,"more":1'))
    assert [(each.first_ns, each.last_ns) for each in read_slot(DISK, slot.state).files] == [(None, None), (-5, 7)]


DAMAGES = [
    ("durable.json", b"{", "unreadable"),
    ("durable.json", b"", "unreadable"),
    ("durable.json", b'{"version":1,"slot":"s0","files":{"joined/../x":1}}', "not the name of an output file"),
    ("manifest.jsonl", b"{}\n", "line 1"),
    ("manifest.jsonl", b'{"version":1,"file":"x","uncompressed_bytes":1}\n', "not the name of an output file"),
    ("retired.json", b"[]", "unreadable"),
]


@pytest.mark.parametrize(("name", "content", "said"), DAMAGES)
def test_damage_is_one_line(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    slot = WrittenSlot(tmp_path)
    slot.append(1, b"abc\n")
    (slot.state / name).write_bytes(content)
    with one_line(PublishedDamaged, said) as raised:
        read_slot(DISK, slot.state)
    assert str(slot.state / name) in str(raised.value)


def test_of_a_retired_slot_only_what_was_sealed_counts(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path)
    slot.append(1, lines(0, 5))
    (slot.state / "retired.json").write_bytes(retired_bytes("s0"))
    gone = read_slot(DISK, slot.state)
    assert (gone.retired, gone.files, gone.output) == (True, (), None)
    sealed = retired_bytes("s0", {slot.name(1): 10, slot.name(2): 20}, tmp_path / "copy")
    (slot.state / "retired.json").write_bytes(sealed)
    (slot.state / "durable.json").unlink()
    assert slot_states(DISK, slot.state.parent) == [slot.state]
    found = read_slot(DISK, slot.state)
    assert told(found.files) == [(1, 10, True, False), (2, 20, True, False)]
    assert (found.retired, found.output) == (True, tmp_path / "copy")


def test_a_directory_that_is_no_output_is_refused(tmp_path: Path) -> None:
    for directory, said in (("none", "no such directory"), ("file", "not a directory"), ("empty", "not an output")):
        if directory == "file":
            (tmp_path / directory).touch()
        elif directory == "empty":
            (tmp_path / directory).mkdir()
        with pytest.raises(UsageError, match=said):
            OutputPlace.of_join(tmp_path / directory)
    (tmp_path / "empty/joined").mkdir()
    with pytest.raises(UsageError, match="--config FILE --datacentre NAME"):
        OutputPlace.of_join(tmp_path / "empty")
    (tmp_path / "empty/.photon").mkdir()
    assert OutputPlace.of_join(tmp_path / "empty").published(DISK) == ()
