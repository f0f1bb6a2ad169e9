"""Backfills with one rule removed each: the simulator must notice. None of this is in the production code.

Rules that a backfill shares with the join are removed as there (``spark_join.ablations``, which says also what is not
noticed). The reading of a part is never the same here, so that nobody may decide twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from photon.batch.verdicts import Verdicts
from photon.idregistry.api import Answer, token_of
from photon.spark.backfill.driver import BackfillDriver, Completion, Finished
from photon.spark.pipeline import part
from photon.spark.pipeline.journal import Plan
from photon.spark.pipeline.registering import BatchCore, Instruction
from tests.simulation.spark_join.ablations import (
    ClearsAtOnce,
    DecidesAgain,
    DecisionAfterInsert,
    NewToken,
)
from tests.simulation.world import backfill
from tests.simulation.world.world import Variant


# -- attempts ------------------------------------------------------------------------------------------------------
def token_of_batch(plan: Plan, part: int, incarnation: int) -> int:
    """Rule 2: all parts of a batch insert under one token."""
    return token_of(incarnation, plan.number)


class UnknownDropped(BatchCore):
    """Rule 3: forgets unknown ids."""

    meaning = Answer.BELOW_BOUNDARY

    def answered(self, answers: Verdicts, now: float) -> Instruction:
        codes = np.where(answers.outcomes == Answer.UNKNOWN, np.uint8(self.meaning), answers.outcomes)
        return super().answered(replace(answers, outcomes=codes), now)


class UnknownIsWon(UnknownDropped):
    """Rule 3: writes unknown ids."""

    meaning = Answer.COMMITTED


# -- the driver ----------------------------------------------------------------------------------------------------
class ClearedBeforeShown(BackfillDriver):
    """Tokens are cleared and staged rows removed as soon as a batch is committed."""

    async def _show(self) -> None:
        completion = Completion(self.journal, self.registry, 0, self.clock, self.pause)  # type: ignore[arg-type]
        await completion.clear()
        completion.tidy()
        await super()._show()


class TidiedBeforeCleared(Completion):
    """Staged rows are removed before the tokens are cleared."""

    async def clear(self) -> int:
        self.tidy()
        return await super().clear()


class FinishedFirst(Completion):
    """The backfill counts as finished before all of it is published."""

    async def __call__(self, join: Callable[[], Awaitable[Finished]]) -> tuple[Finished, int]:
        if self.finished() is not None:
            return await super().__call__(join)
        self.journal.disk.make_dir(self.journal.directory)
        self.journal.disk.create(self._mark, msgspec.json.encode(Finished(counts={}, files=0, bytes=0)))
        await join()
        return await super().__call__(join)


@dataclass(frozen=True)
class Ablation:
    """``finds``: the violation's message."""

    variant: Variant
    finds: str


def _with(name: str, instead: object, where: object = backfill) -> Variant:
    return Variant(patches=((where, name, instead),))


ABLATIONS = {
    "token of the batch": Ablation(_with("token", token_of_batch, Plan), "2 times"),
    "each attempt decides": Ablation(_with("Journal", DecidesAgain), "lost|times"),
    "inserted before the decision is durable": Ablation(_with("Journal", DecisionAfterInsert), "lost|owned"),
    "unknown dropped": Ablation(_with("BatchCore", UnknownDropped, part), "lost"),
    "unknown taken for won": Ablation(_with("BatchCore", UnknownIsWon, part), "2 times|twice"),
    "finished before it is published": Ablation(_with("Completion", FinishedFirst), "lost"),
    "cleared and tidied before it is shown": Ablation(_with("BackfillDriver", ClearedBeforeShown), "lost|not done"),
    "cleared before the result": Ablation(_with("Worker", ClearsAtOnce), "lost"),
    "tidied before cleared": Ablation(_with("Completion", TidiedBeforeCleared), "owned at rest"),
    "registered under the token of the attempt": Ablation(_with("Worker", NewToken), "lost"),
}
