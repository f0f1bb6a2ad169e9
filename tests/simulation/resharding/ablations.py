"""Rule 16 taken apart: each measure out of the way, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest

from photon.idregistry import commands as c
from photon.idregistry.api import I64
from photon.idregistry.config_machine import ConfigMachine, Founding
from photon.idregistry.resharding import intents
from photon.idregistry.resharding.intents import Changes
from photon.idregistry.resharding.preparing import Bools, Prepared, Sharding, Standing
from photon.idregistry.sharding import shards_of, with_range
from tests.simulation.registry.world import client_cut, client_killed, small_clock_jump
from tests.simulation.resharding.world import hasty_intent, late_entry, slot_retired
from tests.simulation.world import faults


@dataclass(frozen=True)
class Ablation:
    """``finds``: what the violation says; ``kinds``: faults under which it shows soon."""

    patch: Callable[[pytest.MonkeyPatch], None]
    finds: str
    kinds: Sequence[faults.Fault]


def _start_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator chose a start beyond all clocks, and that is believed."""
    prepare = Sharding.prepare

    def trusting(self: Sharding, command: c.Prepare) -> str:
        latest, self.latest = self.latest, -(2**63)
        why = prepare(self, command)
        self.latest = latest
        return why

    monkeypatch.setattr(Sharding, "prepare", trusting)


def _prepared_takes_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    def eager(self: Sharding, digests: bytes, times: I64) -> Bools:
        if self.standing.prepared is None:
            return self.own(digests, times)
        return np.asarray(shards_of(digests, times, self.both) == self.number)

    monkeypatch.setattr(Sharding, "takes", eager)


def _prepared_keeps_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sharding, "takes", Sharding.own)


def _routed_by_intents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers and new shards go by a change from its intent on."""
    intend = intents.intend

    def at_once(changes: Changes, command: c.Intend) -> tuple[Changes, str]:
        after, why = intend(changes, command)
        if not why:
            ranges = with_range(changes.ranges, command.starts_ns, command.shards)
            after = msgspec.structs.replace(after, ranges=ranges)
        return after, why

    decide = intents.decide

    def in_the_end(changes: Changes, command: c.Decide) -> tuple[Changes, str]:
        pending = changes.pending
        if pending is None or pending.config != command.config:
            return decide(changes, command)
        last = changes.ranges[-2]
        before = (*changes.ranges[:-2], c.Range(last.start_ns, changes.ranges[-1].end_ns, last.shards))
        return decide(msgspec.structs.replace(changes, ranges=before), command)

    monkeypatch.setattr(intents, "intend", at_once)
    monkeypatch.setattr(intents, "decide", in_the_end)


def _fences_of_the_intent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new shard's fences are collected when the change begins; who retires a slot sees to those of then."""
    apply, founding, retired = ConfigMachine.apply, ConfigMachine.founding, ConfigMachine.retired
    early: dict[ConfigMachine, list[str]] = {}

    def remembering(self: ConfigMachine, index: int, command: bytes) -> Any:
        result = apply(self, index, command)
        if isinstance(c.decode_config(command), c.Intend) and not result:
            early[self] = retired(self)
        return result

    def of_then(self: ConfigMachine, shard: int) -> Founding:
        now = founding(self, shard)
        known = early.get(self, [])
        return Founding(now.configure, [(name, dc, newest, name in known) for name, dc, newest, _ in now.slots])

    monkeypatch.setattr(ConfigMachine, "apply", remembering)
    monkeypatch.setattr(ConfigMachine, "founding", of_then)
    monkeypatch.setattr(ConfigMachine, "retired", lambda self: early.get(self, []))


def _old_prepares_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard does not remember which changes have ended."""

    def forgetful(self: Sharding, command: c.Prepare) -> str:
        if not self.number or self.standing.prepared is not None:
            return "not now"
        if self.latest >= command.starts_ns:
            self._replace(refused=command.config)
            return "too late"
        self._replace(prepared=Prepared(command.config, command.starts_ns, command.shards))
        return ""

    monkeypatch.setattr(Sharding, "prepare", forgetful)


def _activated_unprepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The config group activates without waiting for the shards, and shards take its word."""

    def step(changes: Changes, shards: Any, now_ns: int) -> c.ConfigCommand | None:
        return None if changes.pending is None else c.Decide(changes.pending.config, True)

    def take(self: Sharding, command: c.Activate) -> str:
        if self.standing.prepared is None:
            return "it comes with the next prepare"
        self.ranges = self.both
        self.standing = Standing(command.config, command.config)
        self.both = ()
        return ""

    from photon.idregistry.resharding import keeper, plan

    shard_step = plan.shard_step

    def prepare_late(changes: Changes, shard: Any, *, retention: bool) -> c.ShardCommand | None:
        known, last = shard.standing, changes.last
        if known.decided < changes.config and known.prepared is None and last is not None:
            return c.Prepare(last.intent.config, last.intent.starts_ns, last.intent.shards)
        return shard_step(changes, shard, retention=retention)

    monkeypatch.setattr(keeper, "config_step", step)
    monkeypatch.setattr(keeper, "shard_step", prepare_late)
    monkeypatch.setattr(Sharding, "activate", take)


_CLIENTS = (client_killed, client_cut)
_AHEAD = (hasty_intent, hasty_intent, small_clock_jump)
_REPLICAS = (faults.crash, faults.partition, faults.pause, faults.weather)
_TWO = "was accepted by shards|acknowledged to tokens"

ABLATIONS: dict[str, Ablation] = {
    "the start is not compared inside the entry": Ablation(_start_not_compared, _TWO, (*_AHEAD, *_CLIENTS)),
    "a prepared shard takes gains": Ablation(_prepared_takes_gains, _TWO, (*_REPLICAS, *_CLIENTS)),
    "a prepared shard keeps losses": Ablation(_prepared_keeps_losses, _TWO, (*_AHEAD, *_CLIENTS, *_REPLICAS)),
    "intents are used for routing": Ablation(_routed_by_intents, _TWO, (*_REPLICAS, *_AHEAD)),
    "fences are collected at the intent": Ablation(
        _fences_of_the_intent, "fenced everywhere", (slot_retired, slot_retired, slot_retired, *_REPLICAS)
    ),
    "prepares of ended changes are taken": Ablation(
        _old_prepares_taken,
        "do not change|no answer|knows changes|do not converge|decided",
        (late_entry, late_entry, late_entry, faults.crash),
    ),
    "activated without waiting for the shards": Ablation(_activated_unprepared, _TWO, (*_REPLICAS, *_AHEAD)),
}
