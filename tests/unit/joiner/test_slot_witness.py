"""The witness of a slot (rule 6): older copies are refused before anything is opened, nothing is shown too early."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from photon.config.disk import RealDisk
from photon.idregistry.api import Kind
from photon.idregistry.witness import Witness, Witnessed, WitnessLog
from photon.joiner.engine import JoinerEngine, JoinerLimits
from photon.joiner.shell import ShellLimits
from photon.joiner.slot.identity import SlotRefused
from photon.joiner.slot.output import OutputLimits, SlotLog
from photon.joiner.slot.place import KINDS
from photon.joiner.slot.slot import AGES, Ages
from photon.joiner.slot.witness import WitnessKeeper, shown
from photon.outputs.log.format import Durable
from photon.verifier.verifier import Verifier, VerifierReport
from tests.unit.joiner.helpers import DIGESTER, Died, FakeRegistry, FakeStore, engine_at, event, lines_under

LIMITS = JoinerLimits(
    shell=ShellLimits(insert_timeout_s=1.0, tick_s=0.005, maintain_s=0.01, witness_s=3600.0),
    lock_wait_s=0.2,
    close_s=1.0,
)
"""The witness is extended only where a test says so."""
FILE = "joined/s0-000001.jsonl"


class Machine:
    """One slot's disk, its registry and a neighbouring directory for copies."""

    def __init__(self, path: Path) -> None:
        self.path = path / "machine"
        self.copy = path / "copy"
        self.registry = FakeRegistry()
        self.limits = LIMITS

    async def running(self) -> JoinerEngine:
        engine = engine_at(self.path, self.registry, FakeStore({b"k": b"k one"}), limits=self.limits)
        await engine.start()
        return engine

    async def refused(self, ages: Ages = AGES) -> str:
        engine = engine_at(self.path, self.registry, FakeStore({}), limits=LIMITS, ages=ages)
        with pytest.raises(SlotRefused) as refusal:
            await engine.start()
        return str(refusal.value)

    async def joined(self, engine: JoinerEngine, *ids: bytes) -> None:
        await engine.join([event(each, b"k") for each in ids], timeout=60.0)
        assert await engine.settle(5.0)

    async def lived(self, *ids: bytes) -> None:
        """An engine joins these, and ends."""
        engine = await self.running()
        if ids:
            await self.joined(engine, *ids)
        await engine.close()

    def copied(self) -> None:
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.path, self.copy)

    def exchange(self) -> None:
        """The active directory is moved aside, and the copy takes its place."""
        aside = self.path.with_name("aside")
        self.path.rename(aside)
        self.copy.rename(self.path)
        aside.rename(self.copy)

    def durable(self) -> Durable:
        return msgspec.json.decode((self.path / "state/durable.json").read_bytes(), type=Durable)

    async def verify(self) -> VerifierReport:
        verifier = Verifier(RealDisk(), self.path / "state", self.path / "out", DIGESTER, self.registry)
        return await verifier.run_once()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


async def test_an_older_copy_is_refused_and_the_newest_goes_on(machine: Machine) -> None:
    engine = await machine.running()
    await machine.joined(engine, b"a")
    machine.copied()
    await machine.joined(engine, b"b")
    await engine.close()
    machine.exchange()
    newest = machine.registry.model.slots["s0"]
    line = await machine.refused()
    assert "older copy of slot s0" in line
    assert "retire" in line
    assert "\n" not in line
    assert machine.registry.model.slots["s0"] == newest, "nothing was opened"
    machine.exchange()
    await machine.lived(b"c")
    assert len(lines_under(machine.path, "joined")) == 3
    assert (await machine.verify()).cleared == 3


async def test_a_state_of_an_earlier_incarnation_is_refused_for_good(machine: Machine) -> None:
    """Without the output, which is kept: an operator's word on the redo log would not make it the newest."""
    await machine.lived(b"a")
    machine.copied()
    await machine.lived(b"b")
    shutil.rmtree(machine.path / "state")
    shutil.copytree(machine.copy / "state", machine.path / "state")
    state = (machine.path / "state/slot.json").read_bytes()
    for ages in (AGES, Ages(accept_damaged_log=True)):
        line = await machine.refused(ages)
        assert "is an older copy of slot s0: it remembers incarnation 1, the registry knows 2" in line
        assert "photon slot retire" in line
        assert (machine.path / "state/slot.json").read_bytes() == state


async def test_a_copy_with_other_bytes_is_refused(machine: Machine) -> None:
    await machine.lived(b"a")
    file = machine.path / "out" / FILE
    data = bytearray(file.read_bytes())
    data[3] ^= 1
    file.write_bytes(data)
    assert "holds other bytes" in await machine.refused()


async def test_an_older_copy_without_the_file_is_refused(machine: Machine) -> None:
    engine = await machine.running()
    machine.copied()
    await machine.joined(engine, b"a")
    await engine.shell.roll()
    await engine.close()
    machine.exchange()
    assert "does not exist" in await machine.refused()


async def test_another_slots_directory_is_told_apart_from_an_older_copy(machine: Machine) -> None:
    await machine.lived(b"a")
    path = machine.path / "state/slot.json"
    path.write_bytes(path.read_bytes().replace(b'"s0"', b'"s9"'))
    assert "belongs to slot s9" in await machine.refused()


@pytest.mark.parametrize("form", ["plain", "gzip", "moved away"])
async def test_final_files_satisfy_the_witness(machine: Machine, form: str) -> None:
    machine.limits = replace(LIMITS, output=OutputLimits(compress=form == "gzip"))
    engine = await machine.running()
    await machine.joined(engine, b"a")
    await engine.shell.roll()
    assert (await machine.verify()).cleared == 1
    await engine.shell.finish_cleared()
    await engine.close()
    assert (machine.path / "out" / FILE).exists() == (form != "gzip")
    if form == "moved away":
        (machine.path / "out" / FILE).unlink()
    machine.copied()
    await machine.lived(b"b")
    machine.exchange()
    assert "s0-000002.jsonl: does not exist" in await machine.refused()
    machine.exchange()
    await machine.lived()


async def test_nothing_is_shown_before_the_witness_has_it(machine: Machine) -> None:
    engine = await machine.running()
    await machine.joined(engine, b"a")
    first = machine.durable().files[FILE]
    await engine.join([event(b"b", b"k")], timeout=60.0)
    machine.registry.unknown_witnesses = 10**6
    assert not await engine.settle(0.2)
    now = machine.durable()
    assert now.files[FILE] == first < now.durable[FILE]
    assert (await machine.verify()).cleared == 1
    await engine.shell.roll()
    now = machine.durable()
    assert (now.rolled, now.closed) == ([], [FILE])
    machine.registry.unknown_witnesses = 0
    await engine.close()
    now = machine.durable()
    assert now.files[FILE] == (machine.path / "out" / FILE).stat().st_size
    assert (now.rolled, now.durable, now.closed) == ([FILE], None, None)


async def test_what_was_not_witnessed_before_a_kill_is_witnessed_after_it(machine: Machine) -> None:
    engine = await machine.running()
    machine.registry.unknown_witnesses = 10**6
    await engine.join([event(b"a", b"k")], timeout=60.0)
    assert not await engine.settle(1.0)  # all but the witness is done by then
    await engine.shell.roll()
    await engine.shell.close()  # like a kill: the witness hears nothing any more
    engine._lock.release()
    machine.registry.unknown_witnesses = 0
    assert machine.durable().files[FILE] == 0
    engine = await machine.running()
    assert await engine.settle(5.0)
    assert machine.durable().files[FILE] > 0
    assert (await machine.verify()).cleared == 1
    await engine.close()


async def test_a_slot_without_a_witness_gets_one_before_it_works(machine: Machine) -> None:
    await machine.lived(b"a")
    machine.registry.model.witnesses.clear()  # as an older release left it
    engine = await machine.running()
    assert machine.registry.model.witnesses["s0"][0].length == (machine.path / "out" / FILE).stat().st_size
    await engine.close()


async def test_an_unchanged_output_asks_for_nothing(machine: Machine) -> None:
    engine = await machine.running()
    await machine.joined(engine, b"a")
    asked = machine.registry.extensions
    for _ in range(3):
        assert await engine.shell.extend_witness()
    assert machine.registry.extensions == asked
    await engine.close()


async def test_a_fenced_process_ends(machine: Machine) -> None:
    engine = await machine.running()
    machine.registry.model.slots["s0"] = (9, b"another process")
    await engine.join([event(b"a", b"k")], timeout=60.0)
    with pytest.raises(Died, match="refused incarnation 1"):
        await engine.settle(5.0)
    await engine.shell.close()
    engine._lock.release()


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


async def test_what_the_copy_lacks_is_shown_and_not_cleared(machine: Machine) -> None:
    """Rule 14: readers continue while no copy is kept, but an id stays owned until its record cannot be lost."""
    engine = await machine.running()
    await machine.joined(engine, b"a")
    await machine.joined(engine, b"b")
    await engine.close()
    output = machine.path / "out" / FILE
    size, first = output.stat().st_size, output.read_bytes().index(b"\n") + 1

    def held(length: int) -> tuple[WitnessLog, ...]:
        return tuple(WitnessLog(1, length if kind is Kind.JOINED else 0, b"") for kind in KINDS)

    files = SlotLog(RealDisk(), machine.path / "out", machine.path / "state", "s0")
    files.prepare()
    files.hold(())
    assert (machine.durable().files[FILE], machine.durable().clearable) == (size, {FILE: 0})
    assert (await machine.verify()).cleared == 0
    files.hold(held(first))
    assert (machine.durable().files[FILE], machine.durable().clearable) == (size, {FILE: first})
    assert (await machine.verify()).cleared == 1
    files.hold(held(size))
    assert (machine.durable().files[FILE], machine.durable().clearable) == (size, None)
    assert (await machine.verify()).cleared == 1
