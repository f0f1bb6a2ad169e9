"""What was said of n ids or events, and who owns those that are taken, in columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from photon.batch.columns import I64, U8, U32, U64, RowIndexes

_NO_REASONS: Mapping[int, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts:
    """A row each. The owner columns mean something where the outcome says that somebody owns the id."""

    outcomes: U8  # of a registry ``idregistry.api.Answer``, of a joiner ``joiner.api.Outcome``
    owner_tokens: U64
    owner_kinds: U8  # ``idregistry.api.Kind``
    owner_tags: U32
    owner_datacentres: U8  # index into datacentres
    datacentres: tuple[str, ...]
    owner_times: I64  # event times that ids were registered with, ns UTC; 0: nobody said
    reasons: Mapping[int, str] = field(default_factory=dict)
    """Row -> why, for people."""

    def __len__(self) -> int:
        return len(self.outcomes)

    @staticmethod
    def blank(
        n: int, outcome: int = 0, datacentres: tuple[str, ...] = (), reasons: Mapping[int, str] = _NO_REASONS
    ) -> Verdicts:
        """n rows of the same outcome, without owners."""
        verdicts = Verdicts(
            np.zeros(n, np.uint8),
            np.zeros(n, np.uint64),
            np.zeros(n, np.uint8),
            np.zeros(n, np.uint32),
            np.zeros(n, np.uint8),
            datacentres,
            np.zeros(n, np.int64),
            reasons,
        )
        if outcome:
            verdicts.outcomes.fill(outcome)
        return verdicts

    def take(self, index: RowIndexes | slice) -> Verdicts:
        """Some of the rows, without their reasons."""
        return Verdicts(
            self.outcomes[index],
            self.owner_tokens[index],
            self.owner_kinds[index],
            self.owner_tags[index],
            self.owner_datacentres[index],
            self.datacentres,
            self.owner_times[index],
        )

    def put(self, rows: RowIndexes | slice, others: Verdicts) -> Verdicts:
        """With ``others`` at these rows, without their reasons. The columns themselves are changed."""
        names, numbers = self.datacentres, others.owner_datacentres
        if others.datacentres != names:
            names += tuple(name for name in others.datacentres if name not in names)
            numbers = np.array([names.index(name) for name in others.datacentres] or [0], np.uint8)[numbers]
        self.outcomes[rows] = others.outcomes
        self.owner_tokens[rows] = others.owner_tokens
        self.owner_kinds[rows] = others.owner_kinds
        self.owner_tags[rows] = others.owner_tags
        self.owner_datacentres[rows] = numbers
        self.owner_times[rows] = others.owner_times
        return self if names == self.datacentres else replace(self, datacentres=names)
