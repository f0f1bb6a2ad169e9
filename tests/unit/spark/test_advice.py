"""The texts about findings: the same in reports and docs, and true of a repair's actions."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from photon.idregistry.api import Answer
from photon.spark.classes import Class
from photon.spark.recover.planning import DISPATCHED, EarlierRepairs, ways
from photon.spark.recover.repairing import CLASSES
from photon.spark.verify.advice import MEANING, REPAIRED, TO_DO
from tests.unit.spark.recover.rows import lost

DOCS = Path(__file__).parents[3] / "docs" / "verification.md"
STATES = ("cleared", "owned", "reopened", None)
ANSWERS = (Answer.ABSENT, Answer.PRESENT, Answer.BELOW_BOUNDARY)


def test_the_docs_table_has_the_words_of_the_report() -> None:
    section = DOCS.read_text().partition("### Of the nightly verification")[2].partition("\n## ")[0]
    cells = [
        line.replace("`", "").strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")
    ]
    expected = {str(kind): [MEANING[kind], TO_DO.get(kind, "nothing to do")] for kind in Class}
    assert {row[0]: row[1:] for row in cells} == expected


@pytest.mark.parametrize("kind", list(Class))
def test_a_repair_is_advised_exactly_where_it_dispatches(kind: Class) -> None:
    advice = TO_DO.get(kind, "")
    assert ("photon spark recover" in advice) == _dispatched(kind, also_unmatched=True)
    assert ("--also-unmatched" in advice) == (
        _dispatched(kind, also_unmatched=True) and not _dispatched(kind, also_unmatched=False)
    )
    assert (kind in REPAIRED) == (_dispatched(kind, also_unmatched=False) or kind is Class.TORN)


def _dispatched(kind: Class, *, also_unmatched: bool) -> bool:
    if not any(kind in classes for classes in CLASSES.values()):
        return False
    for state, answer in product(STATES, ANSWERS):
        [way] = ways(
            [lost(1, kind, state)], np.array([answer], np.uint8), [EarlierRepairs.NOT_ASKED],
            also_unmatched=also_unmatched,
        )  # fmt: skip
        # The state that a report gives the class, not one that it cannot have.
        if way in DISPATCHED and (kind is not Class.LOST_OWNED or state == "owned"):
            return True
    return False
