"""Backfills with one rule removed each: the simulator must notice. None of this is in the production code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from photon.batch.verdicts import Verdicts
from photon.idregistry.api import Answer, token_of
from photon.joiner.rows import Rows
from photon.spark.backfill import driver
from photon.spark.backfill.attempt import BatchShell
from photon.spark.backfill.batch_names import BatchName
from photon.spark.backfill.core import BatchCore, Insert, Instruction, Stage
from photon.spark.backfill.driver import Driver
from photon.spark.backfill.manifest import Manifest
from photon.spark.backfill.staging import Part, staged_batches
from tests.simulation.world import backfill
from tests.simulation.world.world import Variant


# -- attempts ------------------------------------------------------------------------------------------------------
class TokenOfRun(BatchName):
    """Rule 2: all attempts of a run insert under one token."""

    @property
    def token(self) -> int:
        return token_of(self.incarnation, 0)


class TokenOfTask(BatchName):
    """Rule 2: the second attempt of a task inserts under the tokens of the first."""

    @property
    def token(self) -> int:
        return token_of(self.incarnation, self.number)


class InsertsBeforeStaging(BatchCore):
    """Rule 1: a registration becomes durable only together with its result."""

    def begin(self) -> Stage:
        return Insert(self._open)  # type: ignore[return-value]


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
class NoRedo(Driver):
    """Discarded attempts keep the ids they won."""

    async def _redo(self) -> None:
        return None


class ManifestBeforeRedo(Driver):
    """Ids won by discarded attempts are written after the manifest."""

    async def settle(self) -> None:
        await self._open()

    async def publish(self, counts: dict[str, int], unregistered: Sequence[Part] = ()) -> Manifest:
        manifest = await super().publish(counts, unregistered)
        await self._redo()
        return manifest


class TidiedBeforeManifest(Driver):
    """Tokens are cleared and staging removed as soon as the files have their names."""

    async def _check_newest(self) -> None:
        await super()._check_newest()
        batches = [str(batch) for batch in self._staged()]
        await self.clear_batches(batches)
        await self.tidy(Manifest("", 0, [], {}))

    def _staged(self) -> list[BatchName]:
        return staged_batches(self._disk, self._places)


class StagingGoesFirst(Driver):
    """Staging is removed before the tokens are cleared."""

    async def clear(self, manifest: Manifest) -> int:
        await self.tidy(manifest)
        return await super().clear(manifest)


class NotFenced(Driver):
    """The list of staged batches is read while speculative attempts of this run still win."""

    async def settle(self) -> None:
        await self._redo()


class NotIntroduced(Driver):
    """A new incarnation is opened, and no shard hears of it."""

    async def _introduce(self) -> None:
        return None


class NewTokenShell(BatchShell):
    """A discarded batch is inserted under a token of the run that redoes it."""

    async def run(self, batch: BatchName, core: BatchCore, rows: Rows) -> None:
        if self._writer != "attempt":
            rows.tokens.setflags(write=True)
            rows.tokens[:] = token_of(int(self._writer, 16), batch.attempt << 16 | batch.number)
        await super().run(batch, core, rows)


class NewTokenOnRedo(Driver):
    """Rule 5: redone under another token."""

    async def _redo(self) -> None:
        driver.BatchShell = NewTokenShell  # type: ignore[misc]
        try:
            await super()._redo()
        finally:
            driver.BatchShell = BatchShell  # type: ignore[misc]


@dataclass(frozen=True)
class Ablation:
    """``finds``: the violation's message."""

    variant: Variant
    finds: str


def _with(name: str, part: type) -> Variant:
    return Variant(patches=((backfill, name, part),))


ABLATIONS = {
    "token of the run": Ablation(_with("BatchName", TokenOfRun), "2 times"),
    "token of the task": Ablation(_with("BatchName", TokenOfTask), "2 times"),
    "inserted before staged": Ablation(_with("BatchCore", InsertsBeforeStaging), "lost|owned"),
    "unknown dropped": Ablation(_with("BatchCore", UnknownDropped), "lost"),
    "unknown taken for won": Ablation(_with("BatchCore", UnknownIsWon), "2 times"),
    "no redo of discarded attempts": Ablation(_with("Driver", NoRedo), "lost"),
    "manifest before redo": Ablation(_with("Driver", ManifestBeforeRedo), "lost"),
    "cleared and tidied before the manifest": Ablation(_with("Driver", TidiedBeforeManifest), "lost"),
    "staging gone before clearing": Ablation(_with("Driver", StagingGoesFirst), "owned at rest"),
    "not fenced before the list is read": Ablation(_with("Driver", NotFenced), "lost"),
    "shards not told of a new incarnation": Ablation(_with("Driver", NotIntroduced), "lost"),
    "new token on redo": Ablation(_with("Driver", NewTokenOnRedo), "lost"),
}
