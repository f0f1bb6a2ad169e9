"""Data a keeper accepts, and its contents after any disk failure."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from photon.config.rpc import WireError
from photon.idregistry.api import INCARNATION_BITS
from photon.idregistry.witness import Witness
from photon.joiner.copies import wire
from photon.joiner.copies.api import EMPTY, CopyOf, Extension, Part, Status
from photon.joiner.copies.kept import CopyDamaged, KeptCopy
from photon.joiner.slot.witness import PrefixHash
from photon.outputs.log.format import retired_bytes
from photon.outputs.published import read_slot
from tests.simulation.world.faulty_disk import FaultyDisk

OF = CopyOf("east", "east-1")
AT = Path("/state/copies/east/east-1")
FIRST = AT / "output" / "joined" / "east-1-000001.jsonl"


def end(number: int, data: bytes) -> Witness:
    found = PrefixHash()
    found.update(data)
    return (found.log(number, len(data)), *EMPTY[1:])


def loaded(disk: FaultyDisk) -> KeptCopy:
    kept = KeptCopy(disk, AT, OF)
    kept.load()
    return kept


def begun() -> tuple[FaultyDisk, KeptCopy]:
    """Opened by incarnation 3."""
    disk = FaultyDisk(Random(1))
    kept = loaded(disk)
    assert kept.open(3).status is Status.OK
    return disk, kept


def extension(ends: Witness, *parts: Part, incarnation: int = 3, shown: Witness = EMPTY) -> Extension:
    return Extension(incarnation, ends, parts, shown)


def test_it_takes_what_follows_and_has_it_after_a_power_cut() -> None:
    disk, kept = begun()
    answer = kept.extend(extension(EMPTY, Part(0, 1, b"one\n"), Part(0, 2, b"two\n")))
    assert (answer.status, answer.ends) == (Status.OK, end(2, b"two\n"))
    disk.power_cut()
    again = loaded(disk)
    assert again.look() == answer
    assert again.read(0, 1, 0).data == b"one\n"
    assert again.read(0, 2, 1).data == b"wo\n"
    assert again.read(0, 3, 0).size == -1


def test_older_incarnations_other_places_and_sealed_copies_are_refused() -> None:
    disk, kept = begun()
    kept.extend(extension(EMPTY, Part(0, 1, b"one\n")))
    here = end(1, b"one\n")
    assert kept.extend(extension(EMPTY, Part(0, 1, b"one\n"))).status is Status.ELSEWHERE
    assert kept.extend(extension(end(1, b"two\n"), Part(0, 1, b"x\n"))).status is Status.ELSEWHERE
    assert kept.open(4).status is Status.OK
    assert kept.open(3).status is Status.STALE
    assert kept.extend(extension(here, Part(0, 1, b"x\n"))).status is Status.STALE
    assert kept.extend(extension(here, Part(0, 1, b"x\n"), incarnation=5)).status is Status.ELSEWHERE
    disk.replace(AT / "retired.json", retired_bytes("east-1"))
    assert kept.extend(extension(here, Part(0, 1, b"x\n"), incarnation=4)).status is Status.SEALED
    assert kept.open(9).status is Status.SEALED
    assert disk.read(FIRST) == b"one\n"


def test_readers_are_shown_what_the_slot_has_published_and_the_copy_has() -> None:
    disk, kept = begun()
    kept.extend(extension(EMPTY, Part(0, 1, b"one\n"), Part(0, 2, b"two\ntwo\n"), shown=end(1, b"one\n")))
    assert [(file.number, file.length) for file in read_slot(disk, AT).files] == [(1, 4), (2, 0)]
    here = end(2, b"two\ntwo\n")
    kept.extend(extension(here, shown=end(2, b"two\n")))
    found = read_slot(disk, AT).files
    assert [(file.number, file.length, file.closed) for file in found] == [(1, 4, True), (2, 4, False)]
    again = loaded(disk)
    again.extend(extension(here, Part(0, 3, b"three\n"), shown=end(9, b"ahead of the copy\n")))
    assert [(file.number, file.length) for file in read_slot(disk, AT).files] == [(1, 4), (2, 8), (3, 6)]


def test_a_copy_that_lost_acknowledged_bytes_says_so() -> None:
    disk, kept = begun()
    kept.extend(extension(EMPTY, Part(0, 1, b"one\n")))
    disk.corrupt(FIRST, 1)
    with pytest.raises(CopyDamaged, match="acknowledged"):
        loaded(disk)


def test_an_incarnation_that_no_slot_has_is_refused() -> None:
    assert wire.incarnation_in((1 << INCARNATION_BITS) - 1)
    for number in (0, 1 << INCARNATION_BITS):
        with pytest.raises(WireError):
            wire.incarnation_in(number)
