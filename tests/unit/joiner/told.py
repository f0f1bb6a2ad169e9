"""A joiner's answers by row, as tests write and read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from photon.batch.verdicts import Verdicts
from photon.idregistry.api import Kind
from photon.joiner.api import JoinAnswers, Outcome
from photon.joiner.core import Reply


class TakenBy(NamedTuple):
    """Earlier owner of an id. ``time_ns`` ``None`` and ``token`` 0 mean that nobody said."""

    datacentre: str
    kind: Kind
    same_line: bool
    time_ns: int | None = None
    token: int = 0


def answers_of(
    outcomes: Sequence[Outcome],
    taken: Mapping[int, TakenBy] = MappingProxyType({}),
    reasons: Mapping[int, str] = MappingProxyType({}),
    **more: Any,
) -> JoinAnswers:
    """``taken``: row -> owner."""
    n = len(outcomes)
    names = tuple(sorted({owner.datacentre for owner in taken.values()}))
    verdicts = replace(Verdicts.blank(n, datacentres=names), outcomes=np.array(outcomes, np.uint8), reasons=reasons)
    same_line = np.zeros(n, np.bool_)
    for row, owner in taken.items():
        if row < n:
            verdicts.owner_datacentres[row] = names.index(owner.datacentre)
            verdicts.owner_kinds[row], same_line[row] = owner.kind, owner.same_line
            verdicts.owner_times[row], verdicts.owner_tokens[row] = owner.time_ns or 0, owner.token
    return JoinAnswers(verdicts, same_line, **more)


def outcomes_of(answers: JoinAnswers | Reply) -> list[Outcome]:
    """Outcomes by row."""
    return list(map(Outcome, answers.verdicts.outcomes.tolist()))


def owners_of(answers: JoinAnswers | Reply) -> dict[int, TakenBy]:
    """Owners by row, for TAKEN rows."""
    found = answers.verdicts
    return {
        row: TakenBy(
            found.datacentres[found.owner_datacentres[row]],
            Kind(int(found.owner_kinds[row])),
            bool(answers.same_line[row]),
            int(found.owner_times[row]) or None,
            int(found.owner_tokens[row]),
        )
        for row, outcome in enumerate(outcomes_of(answers))
        if outcome is Outcome.TAKEN
    }


def by_row(answers: JoinAnswers) -> tuple[object, ...]:
    """All its answers, for comparison."""
    flags = answers.overloaded, answers.failed, tuple(answers.ambiguous), tuple(answers.unpaired)
    return outcomes_of(answers), owners_of(answers), dict(answers.verdicts.reasons), *flags
