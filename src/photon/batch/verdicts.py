"""Verdicts on ids or events, and the owners of taken ids, in columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from photon.batch.columns import I64, U8, U32, U64, RowIndexes


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts:
    """One verdict per row. The owner columns are valid only if the outcome means that the id has an owner."""

    outcomes: U8  # ``idregistry.api.Answer`` from a registry, ``joiner.api.Outcome`` from a joiner
    owner_tokens: U64
    owner_kinds: U8  # ``idregistry.api.Kind``
    owner_tags: U32
    owner_datacentres: U8  # index into datacentres
    datacentres: tuple[str, ...]
    owner_times: I64  # event times that ids were registered with, ns UTC; 0 if unknown
    reasons: Mapping[int, str] = field(default_factory=dict)  # row -> reason, for display

    def __len__(self) -> int:
        return len(self.outcomes)

    @staticmethod
    def blank(n: int, outcome: int = 0, datacentres: tuple[str, ...] = ()) -> Verdicts:
        """Makes n rows with the same outcome, without owners."""
        return Verdicts.plain(np.full(n, outcome, np.uint8), datacentres)

    @staticmethod
    def plain(outcomes: U8, datacentres: tuple[str, ...] = ()) -> Verdicts:
        """Makes verdicts with these outcomes, without owners."""
        n = len(outcomes)
        return Verdicts(
            outcomes,
            np.zeros(n, np.uint64),
            np.zeros(n, np.uint8),
            np.zeros(n, np.uint32),
            np.zeros(n, np.uint8),
            datacentres,
            np.zeros(n, np.int64),
        )

    def says(self, outcome: int) -> bool:
        """True if any row has this outcome."""
        return outcome in self.outcomes.tobytes()  # takes a sixth of numpy's time for few rows

    def take(self, index: RowIndexes | slice) -> Verdicts:
        """Returns the rows at ``index``, without their reasons."""
        return Verdicts(
            self.outcomes[index],
            self.owner_tokens[index],
            self.owner_kinds[index],
            self.owner_tags[index],
            self.owner_datacentres[index],
            self.datacentres,
            self.owner_times[index],
        )

    def put(self, parts: Sequence[tuple[RowIndexes, Verdicts]]) -> Verdicts:
        """Returns a copy with each part's rows put at its index, which must be ascending; without reasons.

        Each part numbers its own ``datacentres``.
        """
        if len(parts) == 1 and len(parts[0][0]) == len(self):
            return parts[0][1]
        names = tuple(
            dict.fromkeys(name for part in (self, *(each for _, each in parts)) for name in part.datacentres)
        )
        whole = replace(self.take(np.arange(len(self))), datacentres=names)  # with columns of its own
        for rows, part in parts:
            whole.outcomes[rows] = part.outcomes
            whole.owner_tokens[rows] = part.owner_tokens
            whole.owner_kinds[rows] = part.owner_kinds
            whole.owner_tags[rows] = part.owner_tags
            whole.owner_times[rows] = part.owner_times
            numbers = [names.index(name) for name in part.datacentres]
            whole.owner_datacentres[rows] = np.array(numbers or [0], np.uint8)[part.owner_datacentres]
        return whole
