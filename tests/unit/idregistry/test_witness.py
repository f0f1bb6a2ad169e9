"""The witness cell: only the newest incarnation extends it, exactly from its end, and never backwards."""

from __future__ import annotations

import msgspec
import pytest

from photon.idregistry.api import Opened
from photon.idregistry.core import commands as c
from photon.idregistry.core.config_machine import ConfigMachine
from photon.idregistry.core.shard_snapshot import SnapshotError
from photon.idregistry.witness import LOGS_MAX, Witness, Witnessed, WitnessLog, extends, refusal

NOTHING: Witness = ()
FIRST: Witness = (WitnessLog(0, 10, b"a"), WitnessLog(0, 0))
GROWN: Witness = (WitnessLog(0, 20, b"b"), WitnessLog(0, 5, b"c"))
ROLLED: Witness = (WitnessLog(1, 3, b"d"), WitnessLog(0, 5, b"c"))


@pytest.mark.parametrize(
    ("longer", "shorter", "answer"),
    [
        (FIRST, NOTHING, True),
        (FIRST, FIRST, True),
        (GROWN, FIRST, True),
        (ROLLED, GROWN, True),
        (FIRST, GROWN, False),
        (GROWN, ROLLED, False),
        (NOTHING, FIRST, False),
        ((FIRST[0],), FIRST, False),
        ((WitnessLog(0, 10, b"x"), FIRST[1]), FIRST, False),
        ((WitnessLog(0, 9, b"a"), WitnessLog(0, 9)), FIRST, False),
    ],
)
def test_extends(longer: Witness, shorter: Witness, answer: bool) -> None:
    assert extends(longer, shorter) == answer


def test_refusals() -> None:
    assert refusal(FIRST, 2, 2, FIRST, GROWN) == ""
    assert refusal(GROWN, 2, 2, FIRST, GROWN) == ""  # asked again
    assert "not the newest" in refusal(FIRST, 3, 2, FIRST, GROWN)
    assert "not the newest" in refusal(GROWN, 3, 2, FIRST, GROWN)
    assert "does not end where" in refusal(ROLLED, 2, 2, FIRST, GROWN)  # a late one
    assert "backwards" in refusal(GROWN, 2, 2, GROWN, FIRST)


class Config:
    def __init__(self) -> None:
        self.machine = ConfigMachine()

    def opened(self, last: int, nonce: bytes) -> Opened:
        result = self.machine.apply(1, c.encode(c.OpenSlot("s", "dc", last, nonce)))
        assert isinstance(result, Opened)
        return result

    def extend(self, incarnation: int, end: Witness, to: Witness, slot: str = "s") -> Witnessed:
        result = self.machine.apply(1, c.encode(c.ExtendWitness(slot, incarnation, end, to)))
        assert isinstance(result, Witnessed)
        return result


def test_opening_fences_and_reads_in_one_step() -> None:
    config = Config()
    assert config.opened(0, b"n1") == Opened(1, 1)
    assert config.extend(1, NOTHING, FIRST) == Witnessed(1, FIRST)
    assert config.opened(1, b"n2") == Opened(2, 2, witness=FIRST)
    assert config.opened(1, b"n2") == Opened(2, 2, witness=FIRST)
    late = config.extend(1, FIRST, GROWN)
    assert (late.witness, late.newest) == (FIRST, 2)
    assert "not the newest" in late.reason
    assert config.extend(2, FIRST, ROLLED) == Witnessed(2, ROLLED) == config.machine.witnessed("s")


def test_unknown_and_retired_slots_have_no_witness() -> None:
    config = Config()
    assert "no slot" in config.extend(1, NOTHING, FIRST).reason
    assert config.machine.witnessed("s") == Witnessed(0, ())
    config.opened(0, b"n1")
    config.machine.apply(2, c.encode(c.RetireSlot("s")))
    refused = config.extend(1, NOTHING, FIRST)
    assert (refused.witness, refused.retired) == ((), True)
    assert "retired" in refused.reason
    assert config.machine.witnessed("s").retired


def test_a_witness_is_bounded() -> None:
    too_many = (WitnessLog(0, 0),) * (LOGS_MAX + 1)
    too_long = (WitnessLog(0, 0, bytes(33)),)
    negative = (WitnessLog(-1, 0),)
    for to in (too_many, too_long, negative):
        with pytest.raises(c.CommandError):
            c.decode_config(c.encode(c.ExtendWitness("s", 1, (), to)))


def test_snapshots_carry_witnesses() -> None:
    config = Config()
    config.opened(0, b"n1")
    config.extend(1, NOTHING, ROLLED)
    chunks = list(config.machine.snapshot())
    other = Config()
    other.machine.restore(chunks)
    assert other.machine.witnessed("s") == Witnessed(1, ROLLED)
    assert list(other.machine.snapshot()) == chunks
    of_nobody = {"k": "witnesses", "items": [["s", []]]}
    stray = [chunks[0], *map(msgspec.msgpack.encode, (of_nobody, {"k": "end", "slots": 0}))]
    with pytest.raises(SnapshotError, match="a witness of slot s"):
        ConfigMachine().restore(stray)
