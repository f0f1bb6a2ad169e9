"""The steps of a retirement, against a registry in memory: their order, and the state after a crash between
any two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from photon.config.disk import RealDisk
from photon.idregistry.api import Answer, Slot
from photon.idregistry.core.outcomes import Refusal, Status
from photon.operations.slots import sealing
from photon.operations.slots.id_list import IdList
from photon.outputs import Cursor, OutputLog, OutputPlace, Position, Reader
from photon.outputs.damaged import add_damaged
from photon.outputs.log.format import DamagedRange
from photon.outputs.published import read_slot
from tests.unit.operations.slots.lost_slot import SLOT, LostSlot, digests_of, lost_slot, rows

IDS = [f"e{number}" for number in range(1, 41)]
OTHER = Slot("east-2", "east", "host:2")


class Killed(Exception):
    """The operator's process."""


class Dying:
    """The registry's recovery; the process dies before, or after, one of its calls."""

    def __init__(self, real: Any, calls: int, *, after: bool) -> None:
        self._real = real
        self._left = calls
        self._after = after

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left < 0 and not self._after:
                raise Killed
            found = await getattr(self._real, name)(*args, **kwargs)
            if self._left < 0:
                raise Killed
            return found

        return call


def listed(lost: LostSlot) -> set[str]:
    lines = lost.ids_path.read_bytes().splitlines()
    return {msgspec.json.decode(line)["event_id"] for line in lines[1:]}


async def test_all_that_it_owned_is_listed_and_given_up(tmp_path: Path) -> None:
    async with lost_slot(tmp_path, IDS) as lost:
        report = await lost.retirement().run()
        assert (report.ids, report.listed, report.reopened, report.resolved) == (40, 40, 40, 40)
        assert await lost.reopened() == digests_of(IDS)
        assert listed(lost) == set(IDS)
        assert read_slot(RealDisk(), lost.state).retired
        late = await lost.registry.insert(rows(["e99"], lost.token), timeout=60)
        assert late.outcomes.tolist() == [Answer.FENCED]
        again = await lost.retirement(already=True).run()  # done is done
        assert (again.ids, again.reopened, again.listed) == (0, 0, 40)


async def test_nothing_is_given_up_before_all_is_listed(tmp_path: Path) -> None:
    class Watching(Dying):
        async def reopen(self, *args: Any, **kwargs: Any) -> Any:
            seen.append(len(lost.ids_path.read_bytes().splitlines()) - 1)
            return await self._real.reopen(*args, **kwargs)

    seen: list[int] = []
    async with lost_slot(tmp_path, IDS) as lost:
        await lost.retirement(recovery=Watching(lost.registry.recovery, 10**6, after=False)).run()
    assert set(seen) == {40}


@pytest.mark.parametrize("after", [False, True])
async def test_killed_at_any_call_it_goes_on_when_repeated(tmp_path: Path, after: bool) -> None:
    async with lost_slot(tmp_path, IDS) as lost:
        killed = 0
        for calls in range(40):
            dying = Dying(lost.registry.recovery, calls, after=after)
            try:
                await lost.retirement(recovery=dying, already=bool(killed)).run()
                break
            except Killed:
                killed += 1
        assert killed > 5
        assert await lost.reopened() == digests_of(IDS)
        assert listed(lost) == set(IDS)
        assert len(lost.ids_path.read_bytes().splitlines()) == 41  # each once


async def test_what_others_own_and_what_is_cleared_stays(tmp_path: Path) -> None:
    async with lost_slot(tmp_path, IDS) as lost:
        cleared = rows(IDS[:10], lost.token)
        await lost.registry.clear(cleared.digests, cleared.times, cleared.tokens, timeout=60)
        await lost.begin(["e50", "e51"], OTHER)
        report = await lost.retirement().run()
        assert report.reopened == 30
        assert await lost.reopened() == digests_of(IDS[10:])


async def test_an_answer_that_was_not_heard_counts_as_given_up(tmp_path: Path) -> None:
    class Deaf(Dying):
        deaf = True

        async def reopen(self, *args: Any, **kwargs: Any) -> Any:
            found = await self._real.reopen(*args, **kwargs)
            if self.deaf:
                self.deaf = False
                return np.full_like(found, Answer.UNKNOWN)
            return found

    async with lost_slot(tmp_path, IDS) as lost:
        report = await lost.retirement(recovery=Deaf(lost.registry.recovery, 10**6, after=False)).run()
        assert (report.reopened, report.cleared_meanwhile) == (40, 0)


async def test_a_registry_that_refuses_or_is_silent_says_so(tmp_path: Path) -> None:
    class Refusing(Dying):
        status = Status.REFUSED

        async def retire_slot(self, *args: Any, **kwargs: Any) -> Any:
            return Refusal(self.status, "the reason")

    async with lost_slot(tmp_path, IDS) as lost:
        refusing = Refusing(lost.registry.recovery, 10**6, after=False)
        with pytest.raises(Exception, match="the reason"):
            await lost.retirement(recovery=refusing).run()
        refusing.status = Status.UNKNOWN
        retirement = lost.retirement(recovery=refusing)
        retirement.asking._wait_s = 0.1
        with pytest.raises(Exception, match=r"the config group does not answer \(the reason\) after 0\.1 s; repeat"):
            await retirement.run()
        assert not await lost.reopened()


# -- with a surviving copy -------------------------------------------------------------------------------------------
async def test_what_is_in_the_copy_is_cleared_and_published_before_the_rest_is_given_up(tmp_path: Path) -> None:
    async with lost_slot(tmp_path, IDS) as lost:
        root = lost.saved(IDS[:25], tail=b'{"event_id":"e26","key"')
        report = await lost.retirement(copy=root).run()
        assert report.copy is not None
        assert (report.copy.cleared, report.reopened) == (25, 15)
        assert await lost.reopened() == digests_of(IDS[25:])
        assert listed(lost) == set(IDS[25:])
        whole = b"".join(map(lost.line, IDS[:25]))
        assert (root / "joined" / "east-1-000001.jsonl").read_bytes() == whole  # the torn line is cut
        slot = read_slot(RealDisk(), lost.state)
        assert slot.retired
        assert slot.output == root.resolve()
        assert [(file.name, file.length) for file in slot.files] == [("joined/east-1-000001.jsonl", len(whole))]


@pytest.mark.parametrize("after", [False, True])
async def test_with_a_copy_it_may_be_killed_anywhere_too(tmp_path: Path, after: bool) -> None:
    async with lost_slot(tmp_path, IDS) as lost:
        root = lost.saved(IDS[:25])
        for calls in range(40):
            dying = Dying(lost.registry.recovery, calls, after=after)
            try:
                await lost.retirement(copy=root, recovery=dying, already=calls > 0).run()
                break
            except Killed:
                continue
        assert await lost.reopened() == digests_of(IDS[25:])


async def test_a_copy_that_comes_after_ids_were_given_up_is_not_published(tmp_path: Path) -> None:
    async with lost_slot(tmp_path, IDS) as lost:
        await lost.retirement().run()
        root = lost.saved(IDS[:25])
        with pytest.raises(sealing.CopyRefused, match="was begun without a copy, and must be continued that way"):
            await lost.retirement(copy=root, already=True).run()
        (lost.state / "retiring.json").unlink()  # begun on another machine
        with pytest.raises(sealing.CopyRefused, match="was retired before without this copy"):
            await lost.retirement(copy=root, already=True).run()
        with pytest.raises(sealing.CopyRefused, match="are no longer owned by their records"):
            await lost.retirement(copy=root).run()
        assert read_slot(RealDisk(), lost.state).files == ()


async def test_begun_with_a_copy_it_goes_on_with_it_alone(tmp_path: Path) -> None:
    async with lost_slot(tmp_path, IDS) as lost:
        root = lost.saved(IDS[:25])
        dying = Dying(lost.registry.recovery, 1, after=False)
        with pytest.raises(Killed):
            await lost.retirement(copy=root, recovery=dying).run()
        with pytest.raises(sealing.CopyRefused, match=f"was begun with --copy {root}"):
            await lost.retirement(already=True).run()
        await lost.retirement(copy=root, already=True).run()


async def test_damaged_ranges_of_a_copy_are_neither_cleared_nor_read(tmp_path: Path) -> None:
    """Their events were returned, and another slot has joined them: their tokens no longer own their ids."""
    async with lost_slot(tmp_path, IDS) as lost:
        root = lost.saved(IDS[:20])
        name, gone = "joined/east-1-000001.jsonl", "joined/east-1-000000.jsonl"
        whole = list(map(lost.line, IDS[:20]))
        begin, end = len(b"".join(whole[:5])), len(b"".join(whole[:8]))
        again = rows(IDS[5:8], lost.token)
        recovery = lost.registry.recovery
        await recovery.reopen(again.digests, again.times, again.tokens, again.generations, operator=True, timeout=60)
        lost.state.mkdir(parents=True)
        marks = [DamagedRange(gone, 0, 700, "is gone", ""), DamagedRange(name, begin, end, "torn", "")]
        add_damaged(RealDisk(), lost.state, "east-1", marks)
        (root / name).write_bytes(b"".join([*whole[:5], b"#" * (end - begin - 1), b"\n", *whole[8:]]))
        report = await lost.retirement(copy=root).run()
        assert report.copy is not None
        assert report.copy.cleared == 17
        assert await lost.reopened() == digests_of([*IDS[5:8], *IDS[20:]])
        place = OutputPlace(lost.directory / "output", lost.directory / "state")
        read = b"".join(block.data for block in Reader(RealDisk(), place).read())
        assert read == b"".join([*whole[:5], *whole[8:]])
        at = Cursor({OutputLog("east-1", "joined"): Position(0, 700)})
        assert b"".join(block.data for block in Reader(RealDisk(), place, cursor=at).read()) == read


# -- the list --------------------------------------------------------------------------------------------------------
def test_a_file_that_is_no_list_of_this_slot_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    for text, why in (
        (b'{"some":"thing"}\n', "is not a list of ids"),
        (b'{"photon":"ids given up with a retired slot","version":1,"slot":"west-1"}\n', "list of slot west-1"),
    ):
        path.write_bytes(text)
        with pytest.raises(Exception, match=why):
            IdList(RealDisk(), path, SLOT.name).open()
        assert path.read_bytes() == text


def test_a_torn_last_line_of_the_list_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    first = IdList(RealDisk(), path, SLOT.name)
    first.sync()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"digest":"00')
    second = IdList(RealDisk(), path, SLOT.name)
    second.open()
    assert len(second) == 0
    assert path.read_bytes() == whole
