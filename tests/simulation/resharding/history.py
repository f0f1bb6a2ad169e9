"""What the registry's history adds when shards change: whose an id is at each entry, and over all logs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from photon.idregistry.api import Answer, incarnation_of
from photon.idregistry.core import commands as c
from photon.idregistry.core.state_machine import UNKNOWN_CALLER, WRONG_SHARD
from tests.simulation.registry import history
from tests.simulation.registry.history import CONFIG_GROUP, Applied, Asked, History, insert_rows
from tests.simulation.world.cluster import Violation

END = 2**63 - 1

Config = list[tuple[int, tuple[int, ...]]]
"""(start, shards), ascending."""


def owner_of(shards: tuple[int, ...], digest: bytes) -> int:
    """One id at a time, and not as the code under test does it."""
    return shards[int.from_bytes(digest[8:], "little") % len(shards)]


@dataclass
class ReshardingHistory(History):
    """Of a registry whose shards change."""

    fenced: dict[str, float] = field(default_factory=dict)
    """Slot -> when its operator had it fenced in every shard."""

    def check(self) -> None:
        """All that the registry promises; and what rule 16 is for, from the replicas' answers alone."""
        super().check()
        self._check_decisions()
        holders = {
            entry.result.incarnation: entry.command.slot
            for entry in self.log(CONFIG_GROUP)
            if isinstance(entry.command, c.OpenSlot)
        }
        accepted: dict[bytes, set[int]] = defaultdict(set)
        for shard in self.shards:
            for entry in self.log(shard):
                if not isinstance(entry.command, c.Batch):
                    continue
                for (caller, digest, *_), answer in zip(insert_rows(entry.command), entry.result[0], strict=True):
                    if answer != Answer.COMMITTED:
                        continue
                    accepted[digest].add(shard)
                    since = self.fenced.get(holders[caller], float("inf"))
                    if entry.at > since:
                        who = f"{holders[caller]}, which was fenced everywhere at {since:.3f}"
                        raise Violation(f"shard {shard} accepted at {entry.at:.3f} from {who}")
        for digest, shards in accepted.items():
            if len(shards) > 1 + self.forgotten[digest]:
                raise Violation(f"id {digest.hex()[:8]} was accepted by shards {sorted(shards)}")

    def model(self, shard: int) -> RoutedModel:
        return RoutedModel(shard)

    def removed(self) -> dict[int, float]:
        """Shard -> when it was."""
        return {
            entry.command.shard: entry.at
            for entry in reversed(self.log(CONFIG_GROUP))
            if isinstance(entry.command, c.Drop) and not entry.result
        }

    def _check_answer(self, each: Asked, given: Any) -> None:
        removed = any(at <= each.answered for at in self.removed().values())
        if not removed or each.answer not in (Answer.BELOW_BOUNDARY, Answer.NO_OP):
            super()._check_answer(each, given)  # else it may be of a shard that was removed, and has no log

    def _check_decisions(self) -> None:
        """Each change ends once; shards do as was decided."""
        decided: dict[int, bool] = {}
        for entry in self.log(CONFIG_GROUP):
            if isinstance(entry.command, c.Decide) and not entry.result:
                number, activate = entry.command.config, entry.command.activate
                if decided.setdefault(number, activate) != activate:
                    raise Violation(f"change {number} was decided twice, otherwise")
        for shard in self.shards:
            for entry in self.log(shard):
                command = entry.command
                if isinstance(command, c.Activate) and not entry.result and decided.get(command.config) is not True:
                    raise Violation(f"shard {shard} activated change {command.config}, decided: {decided}")


class RoutedModel(history.ShardModel):
    """The protocol's table, and rule 16, one id after the other."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.config: Config | None = None
        self.pending: tuple[int, Config] | None = None
        self.latest = -(2**63)
        self.decided = 0
        self.active = 0
        self.refused = 0
        self.closed = False

    def apply(self, entry: Applied) -> list[tuple[str, bytes, int, int, int]]:
        command = entry.command
        if isinstance(command, c.Boundary):
            self.latest = max(self.latest, command.time_ns)
        if isinstance(command, c.Configure):
            if self.config is None:
                self.config = [(each.start_ns, each.shards) for each in command.ranges]
                self.decided, self.active = command.decided, command.config
        elif isinstance(command, c.Prepare):
            self._same(entry, self._prepare(command), not entry.result)
        elif isinstance(command, c.Activate):
            if self.pending is not None and self.pending[0] == command.config > self.decided:
                self.config, self.decided, self.pending = self.pending[1], command.config, None
                self.active = command.config
        elif isinstance(command, c.Abort):
            if self.config is not None and command.config > self.decided:
                self.decided, self.pending = command.config, None
        elif isinstance(command, c.Close):
            if not entry.result and (self.entries or self.boundary < self._until()):
                raise Violation(f"shard {self.number} was closed with {len(self.entries)} ids")
            self.closed |= not entry.result
        else:
            return super().apply(entry)
        return []

    def _prepare(self, command: c.Prepare) -> bool:
        if self.config is None:
            return False
        if self.pending is not None:
            return self.pending[0] == command.config
        if command.config != self.decided + 1:
            return False
        if self.latest >= command.starts_ns or self.refused == command.config:
            self.refused = command.config
            return False
        self.pending = command.config, [*self.config, (command.starts_ns, command.shards)]
        return True

    def _until(self) -> int:
        assert self.config is not None
        ends = [start for start, _ in self.config[1:]] + [END]
        return max(end for end, (_, shards) in zip(ends, self.config, strict=True) if self.number in shards)

    def _own(self, digest: bytes) -> bool:
        return self.config is not None and owner_of(self.config[-1][1], digest) == self.number

    def _takes(self, digest: bytes, time: int, by: int) -> bool:
        if self.config is None or not self._own(digest):
            return False
        if self.pending is not None:
            start, shards = self.pending[1][-1]
            if time >= start and owner_of(shards, digest) != self.number:
                return False
        return by == self.active or all(owner_of(shards, digest) == self.number for _, shards in self.config)

    def _insert(self, caller: int, digest: bytes, time: int, token: int, generation: int, by: int) -> int:
        slot = self.slots.get(caller)
        passed = (
            slot is not None
            and slot not in self.fenced
            and caller == self.newest[slot]
            and self.slots.get(incarnation_of(token)) == slot
        )
        if passed and digest not in self.entries and not self._takes(digest, time, by):
            return WRONG_SHARD
        answer = super()._insert(caller, digest, time, token, generation, by)
        if answer == Answer.COMMITTED:
            self.latest = max(self.latest, time)
        assert answer != WRONG_SHARD
        assert passed or answer in (UNKNOWN_CALLER, Answer.FENCED, Answer.STALE_INCARNATION)
        return answer

    def _clear(self, digest: bytes, time: int, token: int, by: int) -> int:
        known = digest in self.entries or (self._own(digest) and by in (0, self.active))
        return super()._clear(digest, time, token, by) if known else WRONG_SHARD

    def _reopen(self, digest: bytes, time: int, token: int, generation: int, operator: bool) -> int:
        if digest not in self.entries and (self.closed or not self._takes(digest, time, 0)):
            return WRONG_SHARD
        return super()._reopen(digest, time, token, generation, operator)
