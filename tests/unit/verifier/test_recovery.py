"""Recovery by token: nothing is given up before all was read, and then exactly the ids that are still owned."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from photon.config.back_off import BackOff
from photon.config.disk import RealDisk
from photon.idregistry.api import I64, U8, U32, U64, Answer, Slot, token_of
from photon.idregistry.core.outcomes import Refusal, Status
from photon.idregistry.core.scans import EntryPage
from photon.idregistry.operate.backup import INCARNATIONS_SINCE_MAX
from photon.outputs.cleared import Clearing
from photon.outputs.published import OutputFile, PublishedDamaged, SlotOutput
from photon.verifier.recovery import RecoveryLimits, Redone, SlotRecovery, read_redone, unread
from tests.simulation.world.registry import OWNED, REOPENED, ModelRegistry
from tests.unit.joiner.helpers import DIGESTER

SLOT = Slot("s0", "dc0")
NAME = "joined/s0-000001.jsonl"
FILE = OutputFile(NAME, 100, closed=False, final=False)
OTHER = OutputFile("joined/s0-000002.jsonl", 9, closed=False, final=False)
REDONE = Redone("s0", 4, {NAME: 100})
LIMITS = RecoveryLimits(page_ids=2, retry_s=1.0, again=BackOff(first=60.0, most=200.0))


# -- the plan --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("files", "clearing", "why"),
    [
        ([FILE], Clearing({NAME: 100}), ""),
        ([FILE], Clearing({NAME: 99}), "cleared up to byte 99 of 100"),
        ([FILE], Clearing(), "cleared up to byte 0 of 100"),
        ([FILE], Clearing({NAME: 100}, {NAME: 2}), "2 lines of .* cannot be read, or the registry refused them"),
        ([], Clearing({NAME: 100}), "is not published any more"),
        ([OutputFile(NAME, 100, closed=True, final=True)], Clearing(), ""),
        ([OutputFile(NAME, 99, closed=True, final=True)], Clearing(), "final with 99 bytes, but 100 were synced"),
        ([FILE, OTHER], Clearing({NAME: 100}, {OTHER.name: 1}), ""),
    ],
)
def test_all_up_to_the_place_must_have_been_read(files: Sequence[OutputFile], clearing: Clearing, why: str) -> None:
    found = unread(REDONE, SlotOutput("s0", tuple(files)), clearing)
    assert bool(found) == bool(why)
    assert re.search(why, found)


# -- the shell -------------------------------------------------------------------------------------------------------
class Registry:
    """The model, asked at once; ``down`` shards refuse, ``deaf`` ones act and say nothing."""

    def __init__(self) -> None:
        self.model = ModelRegistry(2, checks_stale=True)
        for nonce in range(6):
            self.model.open_slot(SLOT, nonce, bytes([nonce]))
        self.down: set[int] = set()
        self.deaf: set[int] = set()
        self.scans = 0

    async def shards(self, *, timeout: float) -> tuple[int, ...]:
        return (0, 1)

    async def scan_owned(
        self, shard: int, slot: str, upto: int, *, cursor: bytes = b"", limit: int = 0, timeout: float
    ) -> EntryPage | Refusal:
        if shard in self.down:
            return Refusal(Status.UNKNOWN)
        self.scans += not cursor
        return self.model.scan_owned(shard, slot, upto, cursor, limit)

    async def reopen(
        self,
        digests: bytes,
        times: I64,
        tokens: U64,
        generations: U32,
        *,
        operator: bool = False,
        retired: bool = False,
        timeout: float,
    ) -> U8:
        assert not operator
        assert not retired
        answers = np.zeros(len(times), np.uint8)
        for row, (time, token, generation) in enumerate(zip(times, tokens, generations, strict=True)):
            digest = digests[16 * row : 16 * row + 16]
            answer = self.model.reopen(digest, int(time), int(token), int(generation))
            answers[row] = Answer.UNKNOWN if self.model.shard_of(digest) in self.deaf else answer
        return answers

    def own(self, ids: Sequence[bytes], incarnation: int) -> None:
        for each in ids:
            self.model.insert(SLOT, incarnation, DIGESTER.digest(each), 7, token_of(incarnation, 1), 1, 0)

    def states(self, ids: Sequence[bytes]) -> list[str]:
        return [self.model.shards[self.model.shard_of(d)].entries[d].state for d in map(DIGESTER.digest, ids)]


IDS = [b"id-%d" % number for number in range(9)]


def publish(state: Path, *, upto: int = 4, length: int = 100, cleared: int = 100) -> None:
    (state / "verifier").mkdir(exist_ok=True, parents=True)
    for name, what in (
        ("redone.json", {"version": 1, "slot": "s0", "upto": upto, "files": {NAME: length}}),
        ("durable.json", {"version": 1, "slot": "s0", "files": {NAME: length}, "rolled": []}),
        ("verifier/cleared.json", {"version": 1, "files": {NAME: cleared}}),
    ):
        (state / name).write_bytes(msgspec.json.encode(what))


async def no_pause(_: float) -> None:
    return None


@pytest.fixture
def registry() -> Registry:
    return Registry()


def recovery(state: Path, registry: Registry) -> SlotRecovery:
    return SlotRecovery(RealDisk(), state, registry, pause=no_pause, limits=LIMITS)


async def test_nothing_is_asked_without_a_word_of_the_slot(tmp_path: Path, registry: Registry) -> None:
    assert not (await recovery(tmp_path, registry).run_once(0.0)).scanned
    assert registry.scans == 0


async def test_what_is_owned_up_to_the_incarnation_is_given_up_and_nothing_else(
    tmp_path: Path, registry: Registry
) -> None:
    registry.own(IDS[:6], 3)
    registry.own(IDS[8:], 4)
    registry.own(IDS[6:8], 5)
    cleared = DIGESTER.digest(IDS[0])
    registry.model.clear(cleared, 7, token_of(3, 1))
    publish(tmp_path)
    report = await recovery(tmp_path, registry).run_once(0.0)
    assert (report.scanned, report.recovered, len(report.examples)) == (True, 6, 6)
    assert registry.states(IDS) == ["cleared", *[REOPENED] * 5, OWNED, OWNED, REOPENED]


async def test_ids_of_before_a_restored_registry_are_left_alone(tmp_path: Path, registry: Registry) -> None:
    registry.own(IDS, 3)
    publish(tmp_path, upto=3 + INCARNATIONS_SINCE_MAX)
    report = await recovery(tmp_path, registry).run_once(0.0)
    assert (report.scanned, report.recovered, report.older) == (True, 0, len(IDS))
    publish(tmp_path, upto=2 + INCARNATIONS_SINCE_MAX)
    assert (await recovery(tmp_path, registry).run_once(0.0)).recovered == len(IDS)


async def test_it_waits_until_the_place_was_read(tmp_path: Path, registry: Registry) -> None:
    registry.own(IDS, 3)
    publish(tmp_path, cleared=99)
    slot = recovery(tmp_path, registry)
    assert "cleared up to byte 99" in (await slot.run_once(0.0)).waits
    assert set(registry.states(IDS)) == {OWNED}
    publish(tmp_path)
    assert (await slot.run_once(0.1)).recovered == len(IDS)


@pytest.mark.parametrize("upto", [4, 0])
async def test_it_scans_again_later_and_later_for_inserts_that_were_under_way(
    tmp_path: Path, registry: Registry, upto: int
) -> None:
    """Also for a slot whose first incarnation lives: each scan is an entry in each shard, which then never rests."""
    publish(tmp_path, upto=upto)
    slot = recovery(tmp_path, registry)
    scanned = [now for now in range(0, 1000, 5) if (await slot.run_once(now)).scanned]
    assert scanned == [0, 60, 180, 380, 580, 780, 980]
    if upto == 0:
        return
    registry.own(IDS[:1], 3)
    assert (await slot.run_once(1180)).recovered == 1
    assert (await slot.run_once(1239)).scanned is False
    assert (await slot.run_once(1240)).scanned is True


async def test_a_shard_that_is_down_is_asked_again_soon_and_the_others_go_on(
    tmp_path: Path, registry: Registry
) -> None:
    registry.own(IDS, 3)
    registry.down = {0}
    publish(tmp_path)
    slot = recovery(tmp_path, registry)
    first = await slot.run_once(0.0)
    assert not first.scanned
    assert 0 < first.recovered < len(IDS)
    registry.down = set()
    second = await slot.run_once(1.0)
    assert second.scanned
    assert first.recovered + second.recovered == len(IDS) == slot.recovered


async def test_an_answer_that_was_not_heard_is_no_end_of_the_scan(tmp_path: Path, registry: Registry) -> None:
    registry.own(IDS, 3)
    registry.deaf = {1}
    publish(tmp_path)
    slot = recovery(tmp_path, registry)
    first = await slot.run_once(0.0)
    assert (first.scanned, first.recovered + first.unknown) == (False, len(IDS))
    assert set(registry.states(IDS)) == {REOPENED}
    assert (await slot.run_once(1.0)).scanned


async def test_another_incarnation_is_redone_at_once(tmp_path: Path, registry: Registry) -> None:
    publish(tmp_path)
    slot = recovery(tmp_path, registry)
    await slot.run_once(0.0)
    registry.own(IDS[:1], 5)
    publish(tmp_path, upto=5)
    assert (await slot.run_once(0.1)).recovered == 1


@pytest.mark.parametrize("text", [b"{", b'{"version":1}'])
def test_what_cannot_be_read_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "redone.json").write_bytes(text)
    with pytest.raises(PublishedDamaged, match=r"redone\.json: unreadable"):
        read_redone(RealDisk(), tmp_path)
