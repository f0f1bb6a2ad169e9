"""Compares replicas' states: one entry makes each replica hash its state, another brings the leader's hash.

Equal entries must give equal states, so at one index of the log all hashes are equal. The ids' part is updated with
each change (``id_bucket``), so a check costs in proportion to a shard's buckets and slots. Pure.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from photon.idregistry.core import commands as c
from photon.idregistry.core.id_table import IdTable

HASH_BYTES = 16
_KEPT = 8


@dataclass(frozen=True, slots=True)
class Checked:
    """The state's hash after entry ``index``.

    ``form`` is the version of the hash: different forms cannot be compared.
    """

    form: int
    index: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between this replica's state and the leader's after entry ``index``."""

    index: int
    ours: bytes
    leaders: bytes


def state_hash(state: Iterable[bytes], table: IdTable) -> bytes:
    """Hashes a shard's state. ``state``: everything but the ids, as at the beginning of a snapshot."""
    digest = hashlib.blake2b(digest_size=HASH_BYTES)
    for chunk in state:
        digest.update(len(chunk).to_bytes(8, "little") + chunk)
    digest.update(len(table).to_bytes(8, "little") + table.sum().to_bytes(8, "little"))
    return digest.digest()


class Checks:
    """Keeps one replica's last hashes and the last difference found; not part of the replicated state."""

    def __init__(self) -> None:
        self._taken: OrderedDict[int, Checked] = OrderedDict()
        # The last difference; ``None`` again once a later state equals the leader's, as after a snapshot from it.
        self.difference: Difference | None = None

    @property
    def last(self) -> Checked | None:
        return next(reversed(self._taken.values()), None)

    def take(self, checked: Checked) -> Checked:
        self._taken[checked.index] = checked
        while len(self._taken) > _KEPT:
            self._taken.popitem(last=False)
        return checked

    def compare(self, command: c.CheckState) -> None:
        ours = self._taken.get(command.index)
        if ours is None or ours.form != command.form or not command.hash:
            return
        if ours.hash == command.hash:
            self.difference = None
        else:
            self.difference = Difference(command.index, ours.hash, command.hash)
