"""Rule 16 with one measure removed each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest

from photon.idregistry.api import I64
from photon.idregistry.core import commands as c
from photon.idregistry.core import reshard_plan
from photon.idregistry.core.config_machine import ConfigMachine, Founding
from photon.idregistry.core.former_shards import held_elsewhere
from photon.idregistry.core.id_table import IdTable
from photon.idregistry.core.shard_changes import Changes
from photon.idregistry.core.shard_standing import Bools, Prepared, ShardFacts, Sharding, Standing
from photon.idregistry.core.sharding import shards_of, with_range
from photon.idregistry.core.state_machine import ShardMachine
from tests.simulation.resharding.machines import MachinesWorld


@dataclass(frozen=True)
class Ablation:
    """``finds``: the violation's message."""

    patch: Callable[[pytest.MonkeyPatch], None]
    finds: str


def _start_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proposer is believed to have chosen the start beyond all entries."""
    prepare = Sharding.prepare

    def trusting(self: Sharding, command: c.Prepare) -> str:
        latest, self.latest = self.latest, -(2**63)
        why = prepare(self, command)
        self.latest = latest
        return why

    monkeypatch.setattr(Sharding, "prepare", trusting)


def _start_compared_by_the_proposer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shard's leader checks before it proposes; entries in between are missed."""
    _start_not_compared(monkeypatch)
    shard_step = reshard_plan.shard_step

    def looking(changes: Changes, shard: ShardFacts, *, retention: bool) -> c.ShardCommand | None:
        step = shard_step(changes, shard, retention=retention)
        return None if isinstance(step, c.Prepare) and shard.latest >= step.starts_ns else step

    monkeypatch.setattr(reshard_plan, "shard_step", looking)


def _prepared_takes_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    takes = Sharding.takes

    def eager(self: Sharding, digests: bytes, times: I64, config: int) -> Bools:
        if self.standing.prepared is None:
            return takes(self, digests, times, config)
        return np.asarray(shards_of(digests, self.standing.prepared.shards) == self.number)

    monkeypatch.setattr(Sharding, "takes", eager)


def _prepared_keeps_later_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other shards' ids in a shard may then be later than the change's start, where nobody looks for them."""
    takes = Sharding.takes

    def unprepared(self: Sharding, digests: bytes, times: I64, config: int) -> Bools:
        standing, self.standing = self.standing, msgspec.structs.replace(self.standing, prepared=None)
        taken = takes(self, digests, times, config)
        self.standing = standing
        return taken

    monkeypatch.setattr(Sharding, "takes", unprepared)


def _former_shards_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(number: int, digests: bytes, shards: Any, removed: Any) -> tuple[Bools, int]:
        return np.zeros(len(digests) // 16, np.bool_), shards[number].serving[0].config

    monkeypatch.setattr(MachinesWorld, "former", staticmethod(nobody))


def _former_shards_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old shards are asked before they have entered the change: they may still come to hold the id."""

    def hasty(number: int, digests: bytes, shards: Any, removed: Any) -> tuple[Bools, int]:
        ahead = {each: _Decided(machine) for each, machine in shards.items()}
        return held_elsewhere(number, digests, ahead, removed)

    monkeypatch.setattr(MachinesWorld, "former", staticmethod(hasty))


class _Decided:
    """A shard that claims to know the end of every change."""

    def __init__(self, machine: ShardMachine) -> None:
        self._machine = machine
        self.holds, self.closed = machine.holds, machine.closed

    @property
    def serving(self) -> tuple[Standing, tuple[c.Range, ...]]:
        standing, ranges = self._machine.serving
        return msgspec.structs.replace(standing, decided=1 << 40), ranges


def _config_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old entry is applied although another shard has held the id in between."""
    takes = Sharding.takes

    def whenever(self: Sharding, digests: bytes, times: I64, config: int) -> Bools:
        return takes(self, digests, times, self.standing.config)

    monkeypatch.setattr(Sharding, "takes", whenever)


def _by_event_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id is looked up only in the bucket of the time it comes with, as if it had only one."""
    add = IdTable.add

    def by_bucket(self: IdTable, lo: Any, hi: Any, times: I64, *columns: Any) -> Any:
        tables = self.__dict__.setdefault("tables", {})
        return add(
            tables.setdefault(int(times[0]) >> self.bucket_bits, IdTable(self.bucket_bits)), lo, hi, times, *columns
        )

    monkeypatch.setattr(IdTable, "add", by_bucket)


def _routed_by_intents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers and new shards follow a change from its intent on; an abandoned change leaves its shards behind."""
    founding = ConfigMachine.founding

    def intended(changes: Changes) -> tuple[c.Range, ...]:
        pending = changes.pending
        return changes.ranges if pending is None else with_range(changes.ranges, pending.starts_ns, pending.shards)

    def of_the_intent(self: ConfigMachine, shard: int) -> Founding:
        known, pending = founding(self, shard), self.changes.pending
        if pending is None or shard not in pending.added:
            return known
        return Founding(c.Configure(shard, intended(self.changes), pending.config, pending.config), known.slots)

    def known_shards(self: MachinesWorld) -> tuple[int, ...]:
        pending = self.config.changes.pending
        added = {*self.shards, *(() if pending is None else pending.added)} - {*self.config.changes.removed}
        return (*self.config.changes.live, *sorted(added - {*self.config.changes.live}))

    monkeypatch.setattr(ConfigMachine, "founding", of_the_intent)
    monkeypatch.setattr(MachinesWorld, "known_shards", known_shards)
    monkeypatch.setattr(
        MachinesWorld, "told", lambda self: [self.config.changes.ranges, intended(self.config.changes)]
    )


def _fences_of_the_intent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new shard opens with the fences from when the change began; whoever retires a slot covers only the shards of
    that time."""
    apply, founding, retired = ConfigMachine.apply, ConfigMachine.founding, ConfigMachine.retired
    early: dict[ConfigMachine, list[str]] = {}

    def remembering(self: ConfigMachine, index: int, command: bytes) -> Any:
        result = apply(self, index, command)
        if isinstance(c.decode_config(command), c.Intend) and not result:
            early[self] = retired(self)
        return result

    def of_then(self: ConfigMachine, shard: int) -> Founding:
        now, known = founding(self, shard), early.get(self, [])
        return Founding(now.configure, [(name, dc, newest, name in known) for name, dc, newest, _ in now.slots])

    monkeypatch.setattr(ConfigMachine, "apply", remembering)
    monkeypatch.setattr(ConfigMachine, "founding", of_then)


def _old_prepares_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard does not remember which changes have ended."""

    def forgetful(self: Sharding, command: c.Prepare) -> str:
        if not self.number or self.standing.prepared is not None or command.starts_ns <= self.ranges[-1].start_ns:
            return "not now"
        if self.latest >= command.starts_ns:
            self._replace(refused=command.config)
            return "too late"
        self._replace(prepared=Prepared(command.config, command.starts_ns, command.shards))
        return ""

    monkeypatch.setattr(Sharding, "prepare", forgetful)


def _activated_unprepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The config group does not wait for all shards; a late shard takes the new config when it hears of it."""
    shard_step = reshard_plan.shard_step

    def at_once(changes: Changes, shards: Any, now_ns: int) -> c.ConfigCommand | None:
        return None if changes.pending is None else c.Decide(changes.pending.config, True)

    def prepare_late(changes: Changes, shard: ShardFacts, *, retention: bool) -> c.ShardCommand | None:
        known, last = shard.standing, changes.last
        if known.decided < changes.config and known.prepared is None and last is not None and last.activated:
            return c.Prepare(last.intent.config, last.intent.starts_ns, last.intent.shards)
        return shard_step(changes, shard, retention=retention)

    monkeypatch.setattr(reshard_plan, "config_step", at_once)
    monkeypatch.setattr(reshard_plan, "shard_step", prepare_late)


def _last_decision_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard abandons a change at a caller's word, regardless of the decision."""
    from photon.idregistry.core import shard_changes

    decide = shard_changes.decide

    def either(changes: Changes, command: c.Decide) -> tuple[Changes, str]:
        after, why = decide(changes, command)
        return after, "" if "was activated" in why or "was aborted" in why else why

    monkeypatch.setattr(shard_changes, "decide", either)


_TWO = "was accepted by shards"

ABLATIONS: dict[str, Ablation] = {
    "the start is not compared": Ablation(_start_not_compared, _TWO),
    "the start is compared before the entry, not inside it": Ablation(_start_compared_by_the_proposer, _TWO),
    "a prepared shard takes gains": Ablation(_prepared_takes_gains, _TWO),
    "a prepared shard keeps losses of after the start": Ablation(_prepared_keeps_later_losses, _TWO),
    "former shards are not asked": Ablation(_former_shards_not_asked, _TWO),
    "former shards are asked before they have entered the change": Ablation(_former_shards_not_waited_for, _TWO),
    "the config of an entry is not compared": Ablation(_config_not_compared, _TWO),
    "an id is looked for by its event time": Ablation(_by_event_time, "was accepted twice"),
    "intents are used for routing": Ablation(_routed_by_intents, _TWO),
    "fences are collected at the intent": Ablation(_fences_of_the_intent, "fenced everywhere"),
    "prepares of ended changes are taken": Ablation(_old_prepares_taken, "stands at|do not end|refused for good"),
    "activated without waiting for the shards": Ablation(_activated_unprepared, "stands at|do not end"),
    "a change may end twice": Ablation(_last_decision_wins, "ended twice"),
}
