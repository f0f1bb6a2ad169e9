"""The registration of a part, answer by answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from photon.batch.verdicts import Verdicts
from photon.idregistry.api import Answer, token_of
from photon.joiner.rows import Rows
from photon.spark.pipeline.registering import BatchCore, Finish, GiveUp, Insert
from tests.unit.spark.pipeline.rows import Event, rows_of

OURS, OTHERS = token_of(7, 1), token_of(8, 1)
A = Answer


def some_rows(count: int) -> Rows:
    return rows_of([Event(bytes([n]) * 16, n) for n in range(count)], token_of(7, 2))


def answers(*codes: Answer, owner: int = 0) -> Verdicts:
    return replace(Verdicts.plain(np.array(codes, np.uint8)), owner_tokens=np.full(len(codes), owner, np.uint64))


def core_of(count: int, *, asked_before: bool = False) -> BatchCore:
    core = BatchCore(some_rows(count), {7}, 10.0, asked_before=asked_before)
    step = core.begin()
    assert isinstance(step, Insert)
    assert step.index.tolist() == list(range(count))
    return core


def test_winners_are_named_and_the_rest_is_counted() -> None:
    core = core_of(6)
    codes = (A.COMMITTED, A.TAKEN, A.DONE, A.BELOW_BOUNDARY, A.TOO_NEW, A.COMMITTED)
    step = core.answered(answers(*codes, owner=OTHERS), 0.0)
    assert isinstance(step, Finish)
    assert step.winners.tolist() == [0, 5]
    assert core.late.tolist() == [False, False, False, True, False, False]
    assert (core.counts.own, core.counts.elsewhere, core.counts.below_boundary) == (1, 1, 1)


def test_what_an_incarnation_of_this_backfill_has_is_its_own() -> None:
    core = core_of(1)
    step = core.answered(answers(A.TAKEN, owner=OURS), 0.0)
    assert isinstance(step, Finish)
    assert not len(step.winners)
    assert (core.counts.own, core.counts.elsewhere) == (1, 0)


def test_only_what_is_unknown_is_asked_again() -> None:
    core = core_of(3)
    step = core.answered(answers(A.UNKNOWN, A.COMMITTED, A.UNKNOWN), 0.0)
    assert isinstance(step, Insert)
    assert step.index.tolist() == [0, 2]
    step = core.answered(answers(A.COMMITTED, A.TAKEN, owner=OTHERS), 1.0)
    assert isinstance(step, Finish)
    assert step.winners.tolist() == [0, 1]


def test_beyond_the_deadline_it_gives_up_and_keeps_what_it_has() -> None:
    core = core_of(2)
    step = core.answered(answers(A.UNKNOWN, A.COMMITTED), 10.0)
    assert isinstance(step, GiveUp)
    assert "1 ids" in step.reason


@pytest.mark.parametrize("answer", [A.FENCED, A.STALE_INCARNATION])
def test_who_was_overtaken_gives_up_even_if_the_rest_won(answer: Answer) -> None:
    step = core_of(2).answered(answers(answer, A.COMMITTED), 0.0)
    assert isinstance(step, GiveUp)
    assert answer.name in step.reason


def test_too_new_is_no_answer_once_somebody_may_have_inserted_it() -> None:
    step = core_of(1, asked_before=True).answered(answers(A.TOO_NEW), 0.0)
    assert isinstance(step, Insert)
    core = core_of(2)
    core.answered(answers(A.UNKNOWN, A.COMMITTED), 0.0)
    assert isinstance(core.answered(answers(A.TOO_NEW), 0.0), Insert)
    step = core.answered(answers(A.TOO_NEW), 10.0)
    assert isinstance(step, GiveUp)
    assert "newer than its clock: 1" in step.reason


def test_a_part_of_nothing_finishes() -> None:
    assert isinstance(BatchCore(some_rows(0), (), 0.0).begin(), Finish)
