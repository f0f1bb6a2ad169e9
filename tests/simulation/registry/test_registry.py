"""The registry under every fault while its shards change: seeded schedules, and the violations they find when a rule
is removed.

`make sim SEED=123` replays one and tells its story.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pytest

from photon.batch.verdicts import Verdicts
from photon.idregistry.api import Answer, Opened
from photon.idregistry.client import routing
from photon.idregistry.client.routing import RoutedRegistry
from photon.idregistry.core import batch_merging
from photon.idregistry.core import commands as c
from photon.idregistry.core.config_machine import ConfigMachine
from photon.idregistry.core.shard_snapshot import NO_BOUNDARY
from photon.idregistry.core.state_machine import WRONG_SHARD, BatchAnswers, ShardMachine
from photon.idregistry.raft.api import Applied, ProposalOutcome, Unknown
from photon.idregistry.replica.shard_server import ShardServer
from tests.simulation.joined.ablations import nobody_asked
from tests.simulation.registry.world import CHANGES, CLOCKS, HOLDERS, REPLICAS, Faults, run
from tests.simulation.world import holders, replica, site_faults
from tests.simulation.world.noticed import notice, reach
from tests.simulation.world.seeds import seeds, share
from tests.simulation.world.world import Variant

BATCH = 5
SEEDS = 50
_SEEDS = share(seeds(SEEDS), 2)


@pytest.mark.seeded
@pytest.mark.parametrize(
    "batch", [_SEEDS[n : n + BATCH] for n in range(0, len(_SEEDS), BATCH)], ids=lambda b: f"{b[0]}-{b[-1]}"
)
def test_the_promises_hold(batch: list[int]) -> None:
    told, answers = "PHOTON_SIM_SEED" in os.environ, 0
    for seed in batch:
        world = run(seed, story=told)
        answers += len(world.history.asked)
        if told:
            print("\n".join(world.story or []))
    print(f"{len(batch)} seeds: {answers} answers", file=sys.stderr)
    if len(batch) == BATCH:
        assert answers > 20 * len(batch)  # or nothing was tested


_ran = cache(partial(run, story=True))  # the same world for all tests that only inspect it


def test_a_seed_replays() -> None:
    first, second = _ran(0), run(0, story=True)
    assert first.story == second.story
    assert first.history.asked == second.history.asked


def test_schedules_reach_what_they_are_for() -> None:
    """Answers and entries of every kind; changes that are activated, refused, abandoned; removed shards; callers with
    an old config."""
    moved = wrong = removed = 0

    def told(seed: int) -> list[str]:
        nonlocal moved, wrong, removed
        world = _ran(seed)
        told = [f"heard {Answer(each.answer).name}" for each in world.history.asked]
        for group in world.history.logs:
            for entry in world.history.log(group):
                refused = isinstance(entry.result, str) and bool(entry.result)
                told.append(f"{type(entry.command).__name__}{' refused' * refused}")
                moved += isinstance(entry.command, c.Boundary)
                removed += isinstance(entry.command, c.Drop) and not refused
                if isinstance(entry.command, c.Decide) and not refused:
                    told.append("activated" if entry.command.activate else "aborted")
                if isinstance(entry.command, c.Batch):
                    wrong += WRONG_SHARD in entry.result[0]
        return [*told, *(world.story or [])]

    words = (
        *(r"kill -9", r"redoes [1-9]", r"is to be retired", r"fenced: 1 of", r"the clock is wrong by", r"is copied"),
        *(
            r"hears STALE_INCARNATION",
            r"ends for good: slot .* was opened as incarnation",
            r"the disk is nearly full",
        ),
        *("opens group 5", "removes group 3", "gives up", "wrong by 3600 s", "takes the place of"),
        *(f"^heard {each}$" for each in ("UNKNOWN", "COMMITTED", "TAKEN", "BELOW_BOUNDARY", "TOO_NEW", "FENCED")),
        *(f"^{each}$" for each in ("Batch", "Announce", "Fence", "Boundary", "Reopen", "Intend", "Prepare", "Abort")),
        *(f"^{each}$" for each in ("Activate", "Seed", "Configure", "Close", "Drop", "activated", "aborted")),
        *("^heard CLEARED$", "^Prepare refused$", "^Intend refused$", "^Decide refused$"),
    )

    def enough() -> bool:
        return moved > 60 and wrong > 20 and removed > 3

    reach("registry", range(200), told, words, enough)


# --- the rules, taken out one by one ------------------------------------------------------------------------------
Patches = tuple[tuple[object, str, Any], ...]


def _unknown_answered_as(answer: Answer) -> Patches:
    finished = ShardServer._finished

    def sure(self: ShardServer, entry: Any, outcome: ProposalOutcome) -> None:
        if isinstance(outcome, Unknown):
            inserts = sum(len(each.ids) for each in entry.inserts)
            clears = sum(len(each.ids) for each in entry.clears)
            rows = Verdicts.blank(inserts, answer)
            outcome = Applied(BatchAnswers(rows, Verdicts.blank(clears, Answer.CLEARED)))
        finished(self, entry, outcome)

    return ((ShardServer, "_finished", sure),)


def _believed(found: Verdicts, answer: Answer) -> Verdicts:
    """Too new, though an earlier attempt may have been entered."""
    return found if answer == Answer.TOO_NEW else _as_unknown(found, answer)


_as_unknown = routing._as_unknown


def _either_way(self: ShardMachine, time_ns: int) -> int:
    self._state.boundary = time_ns
    return time_ns


def _unchecked(self: ShardMachine, batch: c.Batch) -> Verdicts:
    """The boundary is kept and advances, and inserts ignore it."""
    boundary, self._state.boundary = self._state.boundary, NO_BOUNDARY
    try:
        return _insert(self, batch)
    finally:
        self._state.boundary = boundary


_insert = ShardMachine._insert


def _refuses_no_copy(self: ConfigMachine, command: Any, slot: Any, newest: int) -> str:
    why = _refusal(self, command, slot, newest)
    return "" if "directory" in why else why


_refusal = ConfigMachine._refusal


def _forgetful(self: ConfigMachine, command: c.OpenSlot) -> Opened:
    """A process that asks again is taken for another one."""
    slot = self._slots.get(command.slot)
    if slot is not None:
        slot.nonce = b""
    return _open(self, command)


_open = ConfigMachine._open


async def _once(self: RoutedRegistry, deadline: float, attempt: Any) -> Any:
    """A client that asks only one replica, and only once."""
    self._backend._leaders = dict.fromkeys(range(9), "east-replica")  # type: ignore[attr-defined]
    return await self._within(deadline, attempt)


def _serves_stale(self: ShardMachine, *args: Any) -> Any:
    answers = _check_callers(self, *args)
    answers[answers == Answer.STALE_INCARNATION] = 0
    return answers


_check_callers = ShardMachine._check_callers


def _hasty(self: ShardMachine, digests: bytes, times: Any) -> Verdicts:
    """A replica tells from its clock what it will soon refuse."""
    found = _look_up(self, digests, times)
    soon = (found.outcomes == Answer.ABSENT) & (times < self.boundary + 500_000_000)
    found.outcomes[soon] = Answer.BELOW_BOUNDARY
    return found


_look_up = ShardMachine.look_up


def _reversed(self: batch_merging.Run) -> c.Batch:
    """Batches applied as one are combined in the wrong order."""
    self.batches.reverse()
    return _whole(self)


_whole = batch_merging.Run.whole


@dataclass(frozen=True)
class Ablation:
    """``finds``: the violation's message; ``kinds``: faults under which it shows soon."""

    patches: Patches
    finds: str
    kinds: Faults


_LATE: Faults = ((holders.open_late, 1),)
_COPIED: Faults = ((holders.copy_slot, 1), *HOLDERS)
_UNHEARD: Faults = ((holders.unheard_and_set_back, 1),)
_BETWEEN: Faults = ((replica.cut_replicas, 6), (site_faults.pause_one, 3), (site_faults.weather, 4))
_NO_FENCE: Patches = ((ShardMachine, "_fence", lambda self, name: ""),)
ABLATIONS: dict[str, Ablation] = {
    "unknown told as committed": Ablation(
        _unknown_answered_as(Answer.COMMITTED), "was answered 1|acknowledged to tokens", _BETWEEN
    ),
    "unknown told as taken": Ablation(_unknown_answered_as(Answer.TAKEN), "was answered 2|taken by", _BETWEEN),
    "too new believed after unknown": Ablation(  # while its entry is in flight
        ((routing, "_as_unknown", _believed),), "too new", _UNHEARD
    ),
    "boundary moves back": Ablation(
        ((ShardMachine, "_raise_boundary", _either_way),), "moves back|the replicas say", CLOCKS
    ),
    "boundary not checked": Ablation(((ShardMachine, "_insert", _unchecked),), "the replicas say", CLOCKS),
    "fence not kept": Ablation(
        _NO_FENCE, "are not retired|the replicas say|acknowledged to tokens", ((holders.retire_holder, 5), *HOLDERS)
    ),
    "slots opened without compare": Ablation(
        ((ConfigMachine, "_refusal", _refuses_no_copy),), "was opened as", _LATE
    ),
    "stale incarnation served": Ablation(
        ((ShardMachine, "_check_callers", _serves_stale),), "the replicas say", _COPIED
    ),
    "look-ups ahead of the log": Ablation(((ShardMachine, "look_up", _hasty),), "a look-up says", CLOCKS),
    "runs of entries lose their order": Ablation(
        ((batch_merging.Run, "whole", _reversed),), "come to another state as one run", (*HOLDERS, *REPLICAS)
    ),
    "nonce forgotten": Ablation(
        ((ConfigMachine, "_open", _forgetful),), "was opened as|was refused", (*HOLDERS, *REPLICAS)
    ),
    "no retries, no hints": Ablation(((RoutedRegistry, "_persist", _once),), "has no answer", _BETWEEN),
    # The other rules of resharding are removed in ``resharding``, where a schedule takes a hundredth of the time.
    "former shards not asked": Ablation(
        ((ShardServer, "held_elsewhere", nobody_asked),), "was accepted by shards|acknowledged to tokens", CHANGES
    ),
}
SEEDS_OF_AN_ABLATION = 1000


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_simulator_notices_a_missing_rule(name: str) -> None:
    ablation = ABLATIONS[name]
    one = partial(run, variant=Variant(patches=ablation.patches), kinds=ablation.kinds)
    notice(f"registry: {name}", range(SEEDS_OF_AN_ABLATION), one, ablation.finds)
