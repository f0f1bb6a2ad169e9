"""A change from the operator's side: its requests, their number, and how it ends; the registry is a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from photon.idregistry.core.commands import END_OF_TIME, NO_TIME
from photon.idregistry.core.outcomes import Refusal, Status
from photon.idregistry.core.resharding import Action, Ask, Change, Resharding, ReshardOutcome, ShardView, Stage
from photon.idregistry.operate.resharding import (
    AFTER_START_SECONDS,
    ReshardFailed,
    apply,
    asked,
    ended,
    refused,
    verified,
)
from tests.kit.clock import ManualClock

START = 10_000_000_000


class Time(ManualClock):
    """Only ``sleep`` moves it."""

    async def sleep(self, seconds: float) -> None:
        self.ns += int(seconds * 1e9)


class Script:
    """Answers in turn, the last one repeatedly."""

    def __init__(self, *answers: ReshardOutcome) -> None:
        self.answers = list(answers)
        self.asked: list[Ask] = []
        self.replicas: list[str] = []

    async def reshard(self, ask: Ask, *, replica: str = "", timeout: float) -> ReshardOutcome:
        self.asked.append(ask)
        self.replicas.append(replica)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def shard(number: int = 1, *, prepared: int = 0, refused: int = 0) -> ShardView:
    return ShardView(number, 1, 1, prepared, refused, NO_TIME, NO_TIME, END_OF_TIME, 0, "r1")


def found(
    stage: Stage, *, config: int = 2, settled: bool = False, reason: str = "", shards: Sequence[ShardView] = ()
) -> Resharding:
    change = Change(config, START, (1, 2, 3), (3,), (), stage, reason, settled)
    return Resharding("r1", 1, (), change, shards or [shard()], (), 0)


PLANNED, PREPARING = found(Stage.PLANNED), found(Stage.PREPARING)
ACTIVATED = found(Stage.ACTIVATED)
SETTLED = found(Stage.ACTIVATED, settled=True)
SILENT = Refusal(Status.UNKNOWN, "nobody is there")


async def changed(
    script: Script, time: Time, *, tries: int = 3, limit: float | None = None, **more: Any
) -> Resharding:
    to = {"lead_s": 1.0, "tries": tries, "timeout": 1.0, "limit": limit, "clock": time, "sleep": time.sleep}
    return await apply(script, 3, **to | more)


async def test_planned_begun_by_its_number_and_watched_until_it_has_settled() -> None:
    script, seen = Script(PLANNED, PREPARING, PREPARING, ACTIVATED, SETTLED), []
    end = await changed(script, Time(), tell=lambda each: seen.append(each.change and each.change.stage))
    assert end is SETTLED
    assert script.asked[:3] == [
        Ask(Action.PLAN, 3, lead_s=1.0),
        Ask(Action.APPLY, 3, lead_s=1.0, config=2),
        Ask(Action.STATUS),
    ]
    assert (len(seen), seen[0], seen[-1]) == (5, Stage.PLANNED, Stage.ACTIVATED)


async def test_who_does_not_answer_for_a_while_is_asked_again() -> None:
    assert await changed(Script(PLANNED, PREPARING, SILENT, SILENT, SETTLED), Time()) is SETTLED


async def test_a_shard_that_refused_leads_to_one_more_try() -> None:
    first = found(Stage.ABORTED, reason="late", shards=[shard(1, prepared=2), shard(2, refused=2)])
    again = [found(Stage.PLANNED, config=3), found(Stage.PREPARING, config=3)]
    last = found(Stage.ACTIVATED, config=3, settled=True)
    script = Script(PLANNED, PREPARING, first, *again, last)
    assert await changed(script, Time()) is last
    assert [ask.config for ask in script.asked if ask.action is Action.APPLY] == [2, 3]


async def test_but_only_so_often() -> None:
    aborted = found(Stage.ABORTED, shards=[shard(refused=2)])
    script = Script(PLANNED, PREPARING, aborted, PLANNED, PREPARING, aborted)
    assert await changed(script, Time(), tries=2) is aborted
    assert len(script.asked) == 6


async def test_what_an_operator_aborted_is_not_tried_again() -> None:
    aborted = found(Stage.ABORTED, reason="by the operator")
    script = Script(PLANNED, PREPARING, aborted)
    assert await changed(script, Time()) is aborted
    assert [ask.action for ask in script.asked].count(Action.PLAN) == 1


async def test_what_cannot_begin_right_now_is_planned_again() -> None:
    no_leader = Refusal(Status.REFUSED, "shards [1] have no leader, so they could not prepare")
    time = Time()
    assert await changed(Script(PLANNED, no_leader, PLANNED, PREPARING, SETTLED), time) is SETTLED
    assert time.monotonic() >= 1
    with pytest.raises(ReshardFailed, match="have no leader"):
        await changed(Script(PLANNED, no_leader, PLANNED, no_leader), Time(), tries=2)


@pytest.mark.parametrize(("limit", "s"), [(None, START / 1e9 + AFTER_START_SECONDS), (2.0, 2.0)])
async def test_it_is_watched_for_a_minute_after_its_start_or_up_to_a_limit(limit: float | None, s: float) -> None:
    time = Time()
    assert await changed(Script(PLANNED, PREPARING), time, limit=limit) is PREPARING
    assert s <= time.monotonic() < s + 1


async def test_nobody_to_watch_is_a_failure_that_says_what_was_begun() -> None:
    with pytest.raises(
        ReshardFailed, match=r"change 2 of the shards was begun, but its outcome is unknown.*nobody is there"
    ):
        await changed(Script(PLANNED, PREPARING, SILENT), Time())


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (Refusal(Status.REFUSED, "there are 3 shards already"), "^there are 3 shards already$"),
        (Refusal(Status.NOT_LEADER), "no replica leads the config group"),
        (SILENT, "does not answer: nobody is there"),
    ],
)
async def test_a_refusal_is_told(refusal: Refusal, message: str) -> None:
    with pytest.raises(ReshardFailed, match=message):
        await changed(Script(refusal), Time())


async def test_a_replica_is_named_that_does_not_answer() -> None:
    script = Script(SILENT)
    with pytest.raises(ReshardFailed, match="registry replica r2 does not answer"):
        await asked(script, Ask(Action.STATUS), replica="r2", timeout=1.0)
    assert script.replicas == ["r2"]


async def test_every_replica_verifies() -> None:
    script = Script(SETTLED, SILENT, SETTLED)
    assert await verified(script, ["a", "b", "c"], timeout=1.0) == {"a": SETTLED, "b": SILENT, "c": SETTLED}
    assert {ask.action for ask in script.asked} == {Action.VERIFY}


@pytest.mark.parametrize(
    ("seen", "number", "yes"),
    [
        (PREPARING, 2, False),
        (ACTIVATED, 2, False),
        (SETTLED, 2, True),
        (found(Stage.ABORTED), 2, True),
        (found(Stage.PREPARING, config=3), 2, True),
        (SETTLED, 3, False),
        (replace(SETTLED, change=None), 2, False),
    ],
)
def test_when_a_change_has_ended(seen: Resharding, number: int, yes: bool) -> None:
    assert ended(seen, number) == yes


@pytest.mark.parametrize(
    ("stage", "by", "number"),
    [(Stage.ABORTED, 2, 2), (Stage.ABORTED, 1, 2), (Stage.PREPARING, 2, 2), (Stage.ABORTED, 2, 3)],
)
def test_refused_is_by_a_shard_and_in_this_change(stage: Stage, by: int, number: int) -> None:
    yes = (stage, by, number) == (Stage.ABORTED, 2, 2)
    assert refused(found(stage, shards=[shard(refused=by)]), number) == yes
