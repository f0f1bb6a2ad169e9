"""The witness of a slot (rule 6), without a process; ``engine.txt`` has what it is for."""

from __future__ import annotations

from pathlib import Path

from photon.config.disk import RealDisk
from photon.idregistry.api import Kind
from photon.idregistry.witness import Witness, Witnessed, WitnessLog
from photon.joiner.slot.output import SlotLog
from photon.joiner.slot.witness import WitnessKeeper, shown


def test_what_was_not_answered_is_asked_again_unchanged() -> None:
    nothing, first, second = (WitnessLog(1, 0),), (WitnessLog(1, 5, b"a"),), (WitnessLog(1, 9, b"b"),)
    keeper = WitnessKeeper("s", 3, nothing)
    assert keeper.due(nothing) is None
    assert keeper.due(first) == first
    assert keeper.heard(None) == ""
    assert keeper.due(second) == first
    assert keeper.heard(Witnessed(3, first)) == ""
    assert keeper.end == first
    assert keeper.due(second) == second
    assert "newest is 4" in keeper.heard(Witnessed(4, first, "incarnation 3 is not the newest one, 4"))


def test_a_newer_file_that_became_final_keeps_the_witness_where_it_is(tmp_path: Path) -> None:
    """An older one may still be plain: then it is the newest plain file, but not the newest that was witnessed."""

    def opened(number: int, witness: Witness | None) -> SlotLog:
        found = SlotLog(RealDisk(), tmp_path / "out", tmp_path / "state", "s0")
        found.prepare()
        found.witness = witness
        found.begin(dict.fromkeys(found.kinds, (number, False)))
        return found

    first = opened(1, None)
    first.write([(Kind.JOINED, b"a\n")], 0.0)
    first.publish()
    first.close()
    assert first.durable[0].length == 2
    witness = (WitnessLog(2, 50, b"of a file that is final"), *first.durable[1:])
    second = opened(3, witness)
    assert second.durable == witness
    second.write([(Kind.JOINED, b"b\n")], 0.0)
    second.publish()
    assert (second.durable[0].number, second.durable[0].length) == (3, 2)
    second.close()


def test_shown() -> None:
    witness = (WitnessLog(2, 10, b"h"),)
    assert [shown(witness, 0, number, 99) for number in (1, 2, 3)] == [99, 10, 0]
    assert shown(witness, 0, 2, 5) == 5
    assert shown(witness, 1, 1, 5) == 0
