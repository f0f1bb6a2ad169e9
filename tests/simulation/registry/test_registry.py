"""The registry under every fault: seeded schedules, and what they find when a rule is taken out.

`make sim SEED=123` replays one and tells its story.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from photon.idregistry.core.state_machine import BatchAnswers, ShardMachine
from photon.idregistry.raft.api import Applied, ProposalOutcome, Unknown
from photon.idregistry.replica.shard_server import ShardServer
from tests.simulation.registry import slots, world
from tests.simulation.world import faults
from tests.simulation.world.cluster import Violation
from tests.simulation.world.noticed import notice, reach
from tests.simulation.world.seeds import seeds, share

BATCH = 5


def _run(seed: int) -> world.RegistryWorld:
    story: list[str] | None = [] if "PHOTON_SIM_SEED" in os.environ else None
    try:
        return world.run(seed, story=story, kinds=slots.ALL_FAULTS)
    except BaseException as e:
        raise AssertionError(f"replay with: make sim SEED={seed} (registry): {e}") from e
    finally:
        if story:
            print(f"\nRegistry, seed {seed}", *story, sep="\n")


_SEEDS = share(seeds(50), 2, least=50)


@pytest.mark.seeded
@pytest.mark.parametrize(
    "batch", [_SEEDS[n : n + BATCH] for n in range(0, len(_SEEDS), BATCH)], ids=lambda b: f"{b[0]}-{b[-1]}"
)
def test_the_promises_hold(batch: list[int]) -> None:
    answers = 0
    for seed in batch:
        answers += len(_run(seed).history.asked)
    print(f"{len(batch)} seeds: {answers} answers", file=sys.stderr)
    if len(batch) == BATCH:
        assert answers > 20 * len(batch)  # or nothing was tested


def test_a_seed_replays() -> None:
    stories: list[list[str]] = [[], []]
    first, second = (world.run(11, story=story, kinds=slots.ALL_FAULTS) for story in stories)
    assert stories[0] == stories[1]
    assert first.history.asked == second.history.asked


def test_schedules_reach_what_they_are_for() -> None:
    """Answers of every kind, entries of every kind, clients killed and slots retired."""
    missing: set[int] = {
        *(Answer.UNKNOWN, Answer.COMMITTED, Answer.TAKEN, Answer.BELOW_BOUNDARY, Answer.TOO_NEW),
        *(Answer.FENCED, Answer.CLEARED),
    }
    lacking = {"Batch", "Announce", "Fence", "Boundary", "Reopen", "Configure"}
    moved = 0

    def told(seed: int) -> list[str]:
        nonlocal moved
        story: list[str] = []
        done = world.run(seed, story=story, kinds=slots.ALL_FAULTS)
        missing.difference_update(each.answer for each in done.history.asked)
        for shard in done.history.shards:
            log = done.history.log(shard)
            lacking.difference_update(type(entry.command).__name__ for entry in log)
            moved += sum(isinstance(entry.command, c.Boundary) for entry in log)
        return story

    words = (
        r"is killed",
        r"redoes [1-9]",
        r"is to be retired",
        r"is fenced everywhere",
        r"the wall clock jumps",
        r"is copied",
        r"hears STALE_INCARNATION",
        r"ends for good: slot .* was opened as incarnation",
    )
    reach(map(told, range(40)), words, lambda: not missing and not lacking and moved > 60)


# --- the rules, taken out one by one ------------------------------------------------------------------------------
def _unknown_answered_as(answer: Answer) -> Callable[[pytest.MonkeyPatch], None]:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        finished = ShardServer._finished

        def sure(self: ShardServer, entry: Any, outcome: ProposalOutcome) -> None:
            if isinstance(outcome, Unknown):
                inserts = sum(len(each.ids) for each in entry.inserts)
                clears = sum(len(each.ids) for each in entry.clears)
                rows = Verdicts.blank(inserts, answer)
                outcome = Applied(BatchAnswers(rows, Verdicts.blank(clears, Answer.CLEARED)))
            finished(self, entry, outcome)

        monkeypatch.setattr(ShardServer, "_finished", sure)

    return patch


def _too_new_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    as_unknown = routing._as_unknown

    def believed(found: Verdicts, answer: Answer) -> Verdicts:
        return found if answer == Answer.TOO_NEW else as_unknown(found, answer)

    monkeypatch.setattr(routing, "_as_unknown", believed)


def _boundary_moves_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def either_way(self: ShardMachine, time_ns: int) -> int:
        self._state.boundary = time_ns
        return time_ns

    monkeypatch.setattr(ShardMachine, "_raise_boundary", either_way)


def _boundary_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept and moves on, and inserts do not look at it."""
    insert = ShardMachine._insert

    def lenient(self: ShardMachine, batch: c.Batch) -> Verdicts:
        boundary, self._state.boundary = self._state.boundary, NO_BOUNDARY
        try:
            return insert(self, batch)
        finally:
            self._state.boundary = boundary

    monkeypatch.setattr(ShardMachine, "_insert", lenient)


def _fence_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShardMachine, "_fence", lambda self, name: "")


def _open_without_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = ConfigMachine._refusal

    def lenient(self: ConfigMachine, command: Any, slot: Any, newest: int) -> str:
        why = refusal(self, command, slot, newest)
        return "" if "remember" in why else why

    monkeypatch.setattr(ConfigMachine, "_refusal", lenient)


def _nonce_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that asks again is taken for another one."""
    original = ConfigMachine._open

    def forgetful(self: ConfigMachine, command: c.OpenSlot) -> Opened:
        slot = self._slots.get(command.slot)
        if slot is not None:
            slot.nonce = b""
        return original(self, command)

    monkeypatch.setattr(ConfigMachine, "_open", forgetful)


def _no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that asks one replica only, once."""

    async def once(self: RoutedRegistry, deadline: float, attempt: Any) -> Any:
        self._backend._leaders = dict.fromkeys(range(9), "a")  # type: ignore[attr-defined]
        return await self._within(deadline, attempt)

    monkeypatch.setattr(RoutedRegistry, "_persist", once)


@dataclass(frozen=True)
class Ablation:
    """``finds``: what the violation says; ``kinds``: faults under which it shows soon."""

    patch: Callable[[pytest.MonkeyPatch], None]
    finds: str
    kinds: Sequence[faults.Fault]


def _stale_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    check = ShardMachine._check_callers

    def lenient(self: ShardMachine, *args: Any) -> Any:
        answers = check(self, *args)
        answers[answers == Answer.STALE_INCARNATION] = 0
        return answers

    monkeypatch.setattr(ShardMachine, "_check_callers", lenient)


def _look_ups_ahead_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica says from its clock what it will refuse soon."""
    look_up = ShardMachine.look_up

    def hasty(self: ShardMachine, digests: bytes, times: Any) -> Verdicts:
        found = look_up(self, digests, times)
        found.outcomes[(found.outcomes == Answer.ABSENT) & (times < self.boundary + 500_000_000)] = (
            Answer.BELOW_BOUNDARY
        )
        return found

    monkeypatch.setattr(ShardMachine, "look_up", hasty)


def _runs_lose_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that are applied as one are put together the wrong way round."""
    whole = batch_merging.Run.whole

    def reversed_whole(self: batch_merging.Run) -> c.Batch:
        self.batches.reverse()
        return whole(self)

    monkeypatch.setattr(batch_merging.Run, "whole", reversed_whole)


_CLIENTS: Sequence[faults.Fault] = (world.client_killed, world.client_killed, world.client_cut)
_REPLICAS: Sequence[faults.Fault] = (faults.crash, faults.partition, faults.weather)
_CLOCKS: Sequence[faults.Fault] = (world.small_clock_jump, world.small_clock_jump, world.late_boundary)

_UNHEARD = (slots.unheard_and_set_back, world.client_cut)
ABLATIONS: dict[str, Ablation] = {
    "unknown told as committed": Ablation(
        _unknown_answered_as(Answer.COMMITTED), "was answered 1|acknowledged to tokens", _REPLICAS
    ),
    "unknown told as taken": Ablation(_unknown_answered_as(Answer.TAKEN), "was answered 2|taken by", _REPLICAS),
    "too new believed after unknown": Ablation(  # while its entry is on its way: one that is known has its answer
        _too_new_is_believed, "too new", (*_UNHEARD, *_REPLICAS, *_UNHEARD)
    ),
    "boundary moves back": Ablation(_boundary_moves_back, "moves back|the replicas say", _CLOCKS),
    "boundary not checked": Ablation(_boundary_not_checked, "the replicas say", _CLOCKS),
    "fence not kept": Ablation(
        _fence_not_kept, "the replicas say|acknowledged to tokens", (world.slot_retired, *_REPLICAS)
    ),
    "slots opened without compare": Ablation(_open_without_compare, "was opened as", [slots.late_opening]),
    "stale incarnation served": Ablation(_stale_is_served, "the replicas say", (slots.slot_copied, *_CLIENTS)),
    "look-ups ahead of the log": Ablation(_look_ups_ahead_of_the_log, "a look-up says", _CLOCKS),
    "runs of entries lose their order": Ablation(
        _runs_lose_the_order, "come to another state as one run", (*_CLIENTS, *_REPLICAS)
    ),
    "nonce forgotten": Ablation(_nonce_forgotten, "was opened as|was refused", (*_CLIENTS, *_REPLICAS)),
    "no retries, no hints": Ablation(_no_retries, "have no answer", _REPLICAS),
}
SEEDS_OF_AN_ABLATION = 1000


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_simulator_notices_a_missing_rule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ablation = ABLATIONS[name]
    ablation.patch(monkeypatch)
    tried = range(SEEDS_OF_AN_ABLATION)
    notice(f"registry: {name}", tried, lambda seed: world.run(seed, kinds=ablation.kinds), ablation.finds, Violation)
