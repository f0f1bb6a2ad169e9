"""The IdRegistry's interface, with ids as columns; the gRPC client and the embedded registry implement it.

Invariant (held by the state machine, argued in docs/architecture.md): an id acknowledged to a token is never
acknowledged to another token, unless the protocol has reopened it since.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

from photon.batch.columns import DIGEST_BYTES as DIGEST_BYTES
from photon.batch.columns import I64 as I64
from photon.batch.columns import U8 as U8
from photon.batch.columns import U32 as U32
from photon.batch.columns import U64 as U64
from photon.batch.columns import split_digests as split_digests
from photon.batch.ids import Ids
from photon.batch.verdicts import Verdicts
from photon.idregistry.witness import Witness, Witnessed

BATCH_BITS = 40
KEY_PROOF = b"photon: the key of this deployment"
INCARNATION_BITS = 24


class Kind(enum.IntEnum):
    """The verdict that an id was registered for."""

    JOINED = 1
    FILTERED = 2
    UNMATCHED = 3
    REJECTED = 4


class Answer(enum.IntEnum):
    """The registry's answer for one id, as decided by ``state_machine``."""

    UNKNOWN = 0  # not known yet: ask again with the same token
    COMMITTED = 1  # yours: write it
    TAKEN = 2  # another token owns it (see the owner columns)
    DONE = 3  # yours once, written and cleared since: drop it
    BELOW_BOUNDARY = 4
    TOO_NEW = 5
    FENCED = 6  # the caller's slot was retired: exit
    STALE_INCARNATION = 7  # a newer process opened the caller's slot: exit
    CLEARED = 8
    REFUSED = 9
    NO_OP = 10
    ABSENT = 11
    PRESENT = 12
    REOPENED = 13  # given up by its owner: a record that carries the next generation may take it
    ELSEWHERE = 14  # a shard of an earlier config holds it: the registry's client asks there


def token_of(incarnation: int, batch: int) -> int:
    """Packs an incarnation and the number of one of its batches into a 64-bit token."""
    if not 0 < incarnation < 1 << INCARNATION_BITS or not 0 <= batch < 1 << BATCH_BITS:
        raise ValueError(f"token out of range: incarnation {incarnation}, batch {batch}")
    return incarnation << BATCH_BITS | batch


def incarnation_of(token: int) -> int:
    return token >> BATCH_BITS


class Digester:
    """Computes the digests that the registry stores in place of ids: keyed BLAKE2b-128 of (join name, event id).

    Each deployment has its own secret key, so that a forged id cannot suppress a billable event.
    """

    def __init__(self, key: bytes, join: str) -> None:
        name = join.encode()
        # Continued from a copy: the key's block is hashed once, not for each id.
        self._begun = blake2b(len(name).to_bytes(4, "little") + name, digest_size=DIGEST_BYTES, key=key)

    def digest(self, event_id: bytes) -> bytes:
        """Returns an event id's digest, 16 bytes."""
        return self.digests([event_id])

    def fingerprint(self) -> bytes:
        """Hashes the key and the join name. Processes compare it: under another key every id would look new."""
        return self.digest(KEY_PROOF)

    def digests(self, event_ids: Sequence[bytes]) -> bytes:
        """Returns the digests of event ids, n x 16 bytes."""
        copied, out = self._begun.copy, []
        for each in event_ids:
            begun = copied()
            begun.update(each)
            out.append(begun.digest())
        return b"".join(out)


@dataclass(frozen=True, slots=True)
class Slot:
    name: str
    datacentre: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class Opened:
    """The result of ``open_slot``. An ``incarnation`` of 0 means refused; ``reason`` says why."""

    incarnation: int
    newest: int
    reason: str = ""
    # The witness at the opening, which fenced all earlier incarnations: the output must extend it (rule 6).
    witness: Witness = ()


@dataclass(frozen=True, slots=True)
class Pulse:
    """The registry's current round-trip and commit times, in seconds."""

    round_trips_s: Mapping[str, float]  # median of the last few round trips to each replica that answered, by replica
    # Time from proposal to commit, measured by the leaders on their last entries: the median of the slowest group.
    # ``None`` means that no leader with a committed entry answered.
    commit_s: float | None


class Registry(Protocol):
    """Routes each id to its shard's leader and merges the answers.

    No method raises for an unreachable registry: ids without an answer are UNKNOWN.
    """

    async def open_slot(self, slot: Slot, last: int, nonce: bytes) -> Opened | None:
        """Opens a slot by compare-and-set of its newest incarnation. ``None``: unknown; retry with the same nonce."""

    async def read_witness(self, slot: str) -> Witnessed | None:
        """Reads a slot's witness at the config group's leader; ``None`` means unknown."""

    async def extend_witness(self, slot: str, incarnation: int, end: Witness, to: Witness) -> Witnessed | None:
        """Moves a slot's witness from ``end`` to ``to``. ``None`` means unknown: repeat the same call."""

    def announce(self, slot: Slot, incarnations: Sequence[int]) -> None:
        """Announces the incarnations whose tokens this process may send, with its own incarnation last.

        Call it before the first insert.
        """

    async def insert(self, inserts: Ids, *, timeout: float) -> Verdicts:
        """Registers ids; the first token wins. One attempt of at most ``timeout`` seconds; retry rows that are
        UNKNOWN.

        The owner columns are valid only for TAKEN and DONE.
        """

    async def clear(self, digests: bytes, times: I64, tokens: U64, *, timeout: float) -> U8:
        """Clears the ids that still have these tokens (rule 8): CLEARED, REFUSED, NO_OP or UNKNOWN for each id."""

    async def look_up(self, digests: bytes, times: I64, *, timeout: float) -> Verdicts:
        """Returns ABSENT, PRESENT (with owner), BELOW_BOUNDARY or UNKNOWN (no replica answered) for each id.

        This is a hint from the nearest replica; a stale ABSENT costs one wasted join.
        """

    async def close(self) -> None: ...
