"""Tracks ids that stay owned (registered but not written, or not cleared), and finds ids owned for too long. Pure.

The registry does not store when an id was registered, so its time counts from when it was first seen owned. Tokens
rise with time within a slot, so if there are too many, the lowest ones are kept, as the oldest.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgspec
import numpy as np

from photon.idregistry.api import U64, incarnation_of

TOKENS_MAX = 4096  # batches tracked singly; younger ones are only counted


class OwnedFile(msgspec.Struct, forbid_unknown_fields=True, tag_field="version", tag=1):
    at_ns: int = 0
    ids: int = 0
    retired: bool = False  # the slot is fenced in some shard
    since_ns: dict[int, int] = {}  # token -> when ids were first seen owned under it

    @property
    def oldest_ns(self) -> int | None:
        """The time at which the oldest id was first seen owned; ``None`` if nothing is owned."""
        return min(self.since_ns.values(), default=None)


@dataclass(slots=True)
class OwnedCount:
    tokens: Counter[int] = field(default_factory=Counter)
    fenced: bool = False
    whole: bool = True  # every shard answered to its end

    def add(self, tokens: U64, *, fenced: bool) -> None:
        self.fenced = self.fenced or fenced
        values, counts = np.unique(tokens, return_counts=True)
        self.tokens.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))


@dataclass(frozen=True, slots=True)
class TooLong:
    ids: int
    for_s: float  # how long the oldest of them has been owned
    incarnations: tuple[int, ...]
    batches: int


def updated(before: OwnedFile, count: OwnedCount, now_ns: int) -> OwnedFile:
    """Returns the file after another scan. An incomplete scan removes no token, as each may still be owned."""
    tokens = set(count.tokens) if count.whole else set(count.tokens) | set(before.since_ns)
    kept = sorted(tokens)[:TOKENS_MAX]
    # a clock that was set back must not make anything older or younger than it can be
    since = {token: min(before.since_ns.get(token, now_ns), now_ns) for token in kept}
    ids = count.tokens.total() if count.whole else max(before.ids, count.tokens.total())
    return OwnedFile(now_ns, ids, count.fenced or (before.retired and not count.whole), since)


def too_long(owned: OwnedFile, count: OwnedCount, now_ns: int, alarm_s: float) -> TooLong | None:
    """Describes the ids owned for longer than ``alarm_s``; ``None`` if there are none."""
    old = {token: at for token, at in owned.since_ns.items() if now_ns - at > alarm_s * 1e9}
    if not old:
        return None
    ids = sum(count.tokens[token] for token in old)
    incarnations = tuple(sorted({incarnation_of(token) for token in old}))
    return TooLong(ids, (now_ns - min(old.values())) / 1e9, incarnations, len(old))
