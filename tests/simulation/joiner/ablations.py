"""The protocol with one rule removed each: the simulator must notice. None of this is in the production code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from photon.adapters.envelope import is_inline
from photon.batch.columns import U8, RowIndexes
from photon.batch.verdicts import Verdicts
from photon.idregistry.api import Answer, Opened, token_of
from photon.joiner.core import Instruction, Redone, Release, SlotCore, _Frame
from photon.joiner.rows import Rows
from photon.joiner.slot import identity, recovery, slot
from photon.joiner.slot.identity import read_state
from photon.joiner.slot.redo_log import RedoFrame
from photon.joiner.slot.slot import Recovered, SlotStore, _Log, write_redone
from photon.verifier.recovery import RecoveryReport, SlotRecovery
from photon.verifier.verifier import Verifier
from tests.simulation.joiner.process import Variant
from tests.simulation.world.registry import REOPENED, Entry, ModelRegistry


# -- rules 1 to 4: the core ----------------------------------------------------------------------------------------
class InsertsBeforeSync(SlotCore):
    """Rule 1: registers before the log is durable."""

    def submit(self, rows: Rows, deadline: float) -> tuple[int, list[Instruction]]:
        number, instructions = super().submit(rows, deadline)
        return number, [*instructions, *self.redo_synced(number)]


class TokenOfProcess(SlotCore):
    """Rule 2: one token for all batches of a process."""

    def take_token(self) -> int:
        return token_of(self._incarnation, 1)


class UnknownDropped(SlotCore):
    """Rule 3: forgets unknown ids."""

    def _keep_unknown(self, frame: _Frame, unknown: Any, now: float) -> None:
        super()._keep_unknown(frame, unknown[:0], now)


class UnknownIs(SlotCore):
    """Rule 3: takes unknown ids for ``meaning``."""

    meaning = Answer.COMMITTED

    def answered(self, number: int, answers: Verdicts, now: float) -> list[Instruction]:
        codes = np.where(answers.outcomes == Answer.UNKNOWN, self.meaning, answers.outcomes).astype(np.uint8)
        patched = replace(answers, outcomes=codes, datacentres=answers.datacentres or ("nobody",))
        return super().answered(number, patched, now)


class UnknownIsTaken(UnknownIs):
    meaning = Answer.TAKEN


class NewTokenForUnknown(SlotCore):
    """Rule 3: asks again under a new token."""

    def tick(self, now: float, *, hurry: bool = False) -> list[Instruction]:
        for frame in self._open.values():
            if self._waits(frame) and frame.asked_before and now >= frame.retry_at:
                frame.rows.tokens.setflags(write=True)
                frame.rows.tokens[:] = self.take_token()
        return super().tick(now, hurry=hurry)


class LoggedIsAVerdict(SlotCore):
    """Rule 3: tells the dispatcher the expected verdicts once its events are logged."""

    def redo_synced(self, upto: int) -> list[Instruction]:
        synced = [frame for frame in self._unsynced if frame.number <= upto]
        out = super().redo_synced(upto)
        for frame in synced:
            frame.verdicts.outcomes[:] = frame.rows.kinds
            out += self._reply(frame)
        return out


class TooNewIsFinal(SlotCore):
    """Rule 3: takes a refusal for an answer although an earlier insert may have been applied."""

    def answered(self, number: int, answers: Verdicts, now: float) -> list[Instruction]:
        self._open[number].asked_before = False
        return super().answered(number, answers, now)


class ForgottenAtAppend(SlotCore):
    """Rule 4: releases lines that are written and not synced."""

    def _settle(self, frame: _Frame) -> list[Instruction]:
        frame.last_write = 0
        return super()._settle(frame)


class ForgottenWithUnknown(SlotCore):
    """Rule 4: the frame leaves the log although one of its ids is unknown (and is asked for from memory)."""

    def answered(self, number: int, answers: Verdicts, now: float) -> list[Instruction]:
        out = super().answered(number, answers, now)
        if number in self._open:
            out.append(Release((number,)))
        return out


# -- rules 4 to 7: the slot -----------------------------------------------------------------------------------------
class FinalBeforeCleared(SlotStore):
    """Rule 4: rolled output leaves the redo's view before its ids are cleared."""

    def cleared(self) -> list[str]:
        return sorted(self._files.rolled)


class NamesNotSynced(SlotStore):
    """Rule 4: directories of the output are not synced."""

    def __init__(self, disk: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(_WithoutDirectorySync(disk), *args, **kwargs)


class _WithoutDirectorySync:
    def __init__(self, disk: Any) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def sync_dir(self, directory: Path) -> None:
        if not str(directory).startswith("/out"):
            self._disk.sync_dir(directory)


class NoRedo(SlotStore):
    """Rule 5: a start drops the log's contents."""

    def recover(self, *, accept_damaged_log: bool = False) -> Recovered:
        found = super().recover(accept_damaged_log=accept_damaged_log)
        return Recovered([], (), found.found, 0)


class RedoUnderNewToken(SlotCore):
    """Rule 5: re-registers its past under a new token."""

    def start(self, kept: Sequence[tuple[int, Rows]]) -> list[Instruction]:
        for _, rows in kept:
            rows.tokens.setflags(write=True)
            rows.tokens[:] = self.take_token()
        return super().start(kept)


class PublishedUnasked(SlotCore):
    """Rule 5: writes missing lines without asking the registry."""

    def start(self, kept: Sequence[tuple[int, Rows]]) -> list[Instruction]:
        out: list[Instruction] = []
        super().start(kept)
        for number, rows in kept:
            out += self.answered(number, Verdicts.blank(len(rows), Answer.COMMITTED), 0.0)
        return out


class NotLookedUp(SlotStore):
    """Rule 5: does not look in the output for the log's lines."""

    def recover(self, *, accept_damaged_log: bool = False) -> Recovered:
        whole = slot._missing
        slot._missing = lambda frames, present: whole(frames, set())
        try:
            return super().recover(accept_damaged_log=accept_damaged_log)
        finally:
            slot._missing = whole


class LookedUpByVerdict(SlotStore):
    """Rule 5: looks for unmatched events in ``unmatched`` alone."""

    def recover(self, *, accept_damaged_log: bool = False) -> Recovered:
        whole = slot._missing
        slot._missing = lambda frames, present: whole(frames, {line for line in present if not is_inline(line)})
        try:
            return super().recover(accept_damaged_log=accept_damaged_log)
        finally:
            slot._missing = whole


class WrittenByVerdict(SlotCore):
    """The verdict, not the line, says in which log a line is written."""

    def submit(self, rows: Rows, deadline: float) -> tuple[int, list[Instruction]]:
        return super().submit(VerdictRows(**{each.name: getattr(rows, each.name) for each in fields(rows)}), deadline)


class VerdictRows(Rows):
    def logs(self, index: RowIndexes) -> U8:
        return self.kinds[index]


class PairsNotTogether(SlotStore):
    """Rule 5: those of an event's pairs that are in the output stay there, even if not all are."""

    def recover(self, *, accept_damaged_log: bool = False) -> Recovered:
        whole = vars(recovery)["lacking_pairs"]
        vars(recovery)["lacking_pairs"] = lambda data: None
        try:
            return super().recover(accept_damaged_log=accept_damaged_log)
        finally:
            vars(recovery)["lacking_pairs"] = whole


class FirstPairIsEnough(SlotStore):
    """Rule 5: an event whose first pair is in the output is not redone, and its other pairs are not completed."""

    def recover(self, *, accept_damaged_log: bool = False) -> Recovered:
        whole, lacking = slot._records_of, vars(recovery)["lacking_pairs"]
        vars(recovery)["lacking_pairs"] = lambda data: None
        slot._records_of = lambda line: whole(line)[:1]
        try:
            return super().recover(accept_damaged_log=accept_damaged_log)
        finally:
            slot._records_of, vars(recovery)["lacking_pairs"] = whole, lacking


class CutToRememberedLength(SlotStore):
    """Rule 5: the output is cut back to the published length after it was searched."""

    def recover(self, *, accept_damaged_log: bool = False) -> Recovered:
        whole = recovery._repair_file

        def cut(
            files: Any, name: str, looked_from: int | None, logged: set[bytes], found: Any, *, completes: bool
        ) -> None:
            durable = files.lengths.get(name, 0)
            whole(files, name, looked_from, logged, found, completes=completes)
            files.disk.truncate(files.root / name, durable)
            files.lengths[name] = durable

        recovery._repair_file = cut
        try:
            return super().recover(accept_damaged_log=accept_damaged_log)
        finally:
            recovery._repair_file = whole


class CompletesWithLostFrames(SlotStore):
    """Rule 5: a torn line is completed from the rest of a damaged log."""

    def _read_log(self, accept_damaged: bool) -> _Log:
        return super()._read_log(accept_damaged)._replace(whole=True)


class CompletesBeforeABadEnd(SlotStore):
    """Rule 5: when a torn line is completed, a bad frame at the log's end is taken for one that was never synced."""

    def _read_log(self, accept_damaged: bool) -> _Log:
        log = super()._read_log(accept_damaged)
        return log._replace(whole=not log.lost)


class NothingStands(SlotStore):
    """Rule 6: lines in the output are not asked for again, regardless of the age of the registry next to it."""

    def standing(self) -> list[Rows]:
        return []


async def reused_nonce(disk: Any, path: Path, named: Any, registry: Any, *, draw_nonce: Any, pause: Any) -> Opened:
    """Rule 6: one nonce serves every start that finds it."""
    state = read_state(disk, path, named)
    nonce = bytes.fromhex(state.nonce) or draw_nonce()
    identity._write(disk, path, named, state.last, nonce)
    return await identity._ask(named, state.last, nonce, registry, pause, path)


async def nonce_from_the_cache(
    disk: Any, path: Path, named: Any, registry: Any, *, draw_nonce: Any, pause: Any
) -> Opened:
    """Rule 6: a start asks with a nonce that its predecessor may not have made durable."""
    state = read_state(disk, path, named)
    if state.nonce:
        last = (await identity._ask(named, state.last, bytes.fromhex(state.nonce), registry, pause, path)).incarnation
    else:
        last = state.last
    nonce = draw_nonce()
    identity._write(disk, path, named, last, nonce)
    opened = await identity._ask(named, last, nonce, registry, pause, path)
    identity._write(disk, path, named, opened.incarnation, b"")
    return opened


class FailedSyncRetried(SlotStore):
    """Rule 7: a failed sync is retried, and believed the second time."""

    def __init__(self, disk: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(_Retrying(disk), *args, **kwargs)


class _Retrying:
    def __init__(self, disk: Any) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def append(self, path: Path) -> Any:
        return _RetryingFile(self._disk.append(path))


class _RetryingFile:
    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        try:
            self._file.sync()
        except OSError:
            self._file.sync()


class Tolerant(SlotStore):
    """Lets cores without rules release events that were not logged yet, or release them twice."""

    def release(self, frames: Sequence[int]) -> None:
        super().release([frame for frame in dict.fromkeys(frames) if frame in self._redo._segment_of])


class TailsNotRewritten(SlotStore):
    """Rule 7: a start trusts what it reads: it syncs the output's tail without rewriting it."""

    def __init__(self, disk: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(_SyncsOnly(disk), *args, **kwargs)


class _SyncsOnly:
    def __init__(self, disk: Any) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def rewrite(self, path: Path, offset: int) -> None:
        file = self._disk.append(path)
        file.sync()
        file.close()


class LogNotCopied(SlotStore):
    """Rule 7: a start continues with the segments it finds."""

    def recover(self, *, accept_damaged_log: bool = False) -> Recovered:
        redo = self._redo
        copy = redo.begin

        def keep(kept: Sequence[tuple[int, RedoFrame]], *, after: int = 0) -> None:
            older = [(redo._path(number), redo._disk.read(redo._path(number))) for number in redo._numbers()]
            if not older or not kept:
                copy(kept, after=after)
                return
            newest = older[-1][0]
            redo._file = redo._disk.append(newest)
            redo._file.sync()
            redo._segment = redo._numbers()[-1]
            redo._synced = redo._file.size
            redo._sizes = dict.fromkeys(redo._numbers(), 0)
            redo._live = dict.fromkeys(redo._numbers(), 1)
            redo._live[redo._segment] = len(kept) + 1
            redo._segment_of = {number: redo._segment for number, _ in kept}

        redo.begin = keep  # type: ignore[method-assign]
        return super().recover(accept_damaged_log=accept_damaged_log)


class VerifierBeyondDurable(Verifier):
    """Rule 8: clears ids it reads above the durable length."""

    def _read_durable(self) -> dict[str, int]:
        found = super()._read_durable()
        for directory in ("joined", "filtered", "unmatched", "rejected"):
            for name in self.disk.names(self.output / directory):
                if name.endswith(".jsonl"):
                    path = self.output / directory / name
                    data = self.disk.read(path)
                    found[f"{directory}/{name}"] = data.rfind(b"\n") + 1
        return found


# -- rule 13: recovery by token -------------------------------------------------------------------------------------
class RedoneAtStart(SlotCore):
    """Said before anything was redone."""

    def start(self, kept: Sequence[tuple[int, Rows]]) -> list[Instruction]:
        return [Redone(self._incarnation - 1), *super().start(kept)]


class RedoneWhenAnswered(SlotCore):
    """Said when the registry has answered; won ids are not synced yet."""

    def _settle(self, frame: _Frame) -> list[Instruction]:
        out = super()._settle(frame)
        if self._past:
            self._past.discard(frame.number)
            out += self._all_redone()
        return out


class RedoneWhenWritten(SlotCore):
    """Said when everything is in the output, synced or not."""

    def written(self, number: int, size: int) -> list[Instruction]:
        out = super().written(number, size)
        if self._past:
            self._past.difference_update(each.number for each in self._settled if each.last_write <= number)
            out += self._all_redone()
        return out


class RedoneWithoutCarried(SlotCore):
    """Ids that were carried over do not count."""

    def _carry_over(self) -> list[Instruction]:
        before = set(self._past or ())
        out = super()._carry_over()
        if self._past:
            self._past &= before
        return out


class RedoneOfItself(SlotCore):
    """An incarnation counts itself as redone when it says so."""

    def _all_redone(self) -> list[Instruction]:
        return [Redone(each.upto + 1) for each in super()._all_redone() if isinstance(each, Redone)]


class PlaceNotSynced(SlotStore):
    """The place is the written length."""

    def publish_redone(self, upto: int) -> None:
        files = self._files
        lengths = {
            files.name(kind, number): files.disk.size(files.root / files.name(kind, number))
            for kind in files.kinds
            for number in files.numbers(kind)
        }
        write_redone(self.disk, self.paths.state, self.slot, upto, lengths)


class PlaceOfTheStart(SlotStore):
    """The place is the synced length at the process's start."""

    def recover(self, *, accept_damaged_log: bool = False) -> Recovered:
        found = super().recover(accept_damaged_log=accept_damaged_log)
        self.at_start = dict(self._files.lengths)
        return found

    def publish_redone(self, upto: int) -> None:
        write_redone(self.disk, self.paths.state, self.slot, upto, self.at_start)


class NotRead(SlotRecovery):
    """Ids are given up before the output was read up to the place."""

    def _unread(self, redone: Any) -> str:
        return ""


class NoRecovery(SlotRecovery):
    """Owned ids that were never written stay so."""

    async def run_once(self, now: float) -> RecoveryReport:
        return RecoveryReport()


class ReopensWithoutCompare(ModelRegistry):
    """Takes an id from any owner."""

    def reopen(self, digest: bytes, time: int, token: int, generation: int) -> Answer:
        entry = self.shards[self.shard_of(digest)].entries.get(digest)
        if entry is None:
            return Answer.NO_OP
        self.give_up(entry)
        return Answer.REOPENED


class ReopensWithoutGeneration(ModelRegistry):
    """A reopened id is as if it had never been owned."""

    def give_up(self, entry: Entry) -> None:
        entry.state = REOPENED


@dataclass(frozen=True)
class Ablation:
    """A removed rule, and the violation the simulator must find then (a regular expression)."""

    variant: Variant
    finds: str


# Ids lost by a sound log are recovered by token: that recovery was needed is the finding.
LOST = "lost|its log was always sound"
TWICE = "twice"
EITHER = "lost|twice"
ABLATIONS: dict[str, Ablation] = {
    "rule 1: insert before the log is synced": Ablation(Variant(core=InsertsBeforeSync, store=Tolerant), LOST),
    "rule 2: token of the process": Ablation(Variant(core=TokenOfProcess), TWICE),
    "rule 2: an id twice in a batch": Ablation(Variant(unique_ids=False), TWICE),
    "rule 3: unknown dropped": Ablation(Variant(core=UnknownDropped), LOST),
    "rule 3: unknown taken for committed": Ablation(Variant(core=UnknownIs), TWICE),
    "rule 3: unknown taken for taken": Ablation(Variant(core=UnknownIsTaken), LOST),
    "rule 3: unknown under a new token": Ablation(Variant(core=NewTokenForUnknown), LOST),
    "rule 3: logged taken for a verdict": Ablation(Variant(core=LoggedIsAVerdict), LOST),
    "rule 3: too new taken for final": Ablation(Variant(core=TooNewIsFinal), LOST),
    "rule 4: forgotten at append": Ablation(Variant(core=ForgottenAtAppend), LOST),
    "rule 4: forgotten with an unknown id": Ablation(Variant(core=ForgottenWithUnknown, store=Tolerant), LOST),
    "rule 4: final before cleared": Ablation(Variant(store=FinalBeforeCleared), TWICE),
    "rule 4: names not synced": Ablation(Variant(store=NamesNotSynced), f"{LOST}|the file is gone"),
    "rule 5: no redo": Ablation(Variant(store=NoRedo), LOST),
    "rule 5: redo under a new token": Ablation(Variant(core=RedoUnderNewToken), LOST),
    "rule 5: published without asking": Ablation(Variant(core=PublishedUnasked), TWICE),
    "rule 5: output not looked into": Ablation(Variant(store=NotLookedUp), TWICE),
    "rule 5: an unmatched event looked for in one log alone": Ablation(
        Variant(store=LookedUpByVerdict, inline=True), TWICE
    ),
    "rule 5: an unmatched event written where its verdict says": Ablation(
        Variant(core=WrittenByVerdict, inline=True), "in the wrong log"
    ),
    "rule 5: some of an event's pairs kept": Ablation(Variant(store=PairsNotTogether, sets=True), "in part"),
    "rule 5: the first of an event's pairs taken for all": Ablation(
        Variant(store=FirstPairIsEnough, sets=True), "in part"
    ),
    "rule 5: cut to a remembered length": Ablation(Variant(store=CutToRememberedLength), LOST),
    "rule 5: a torn line completed from a damaged log": Ablation(
        Variant(store=CompletesWithLostFrames, rots=1.0), EITHER
    ),
    "rule 5: a torn line completed from a log with a bad end": Ablation(
        Variant(store=CompletesBeforeABadEnd, rots=1.0), "not at rest.*lost"
    ),
    "rule 6: no lock": Ablation(Variant(locks=False), TWICE),
    "rule 6: nonce reused": Ablation(Variant(open=reused_nonce), TWICE),
    "rule 6: nonce asked with before it is durable": Ablation(Variant(open=nonce_from_the_cache), "refused"),
    "rule 6: without a witness": Ablation(Variant(witness=False), f"{LOST}|changed|twice"),
    "rule 6: ages not compared": Ablation(Variant(ages=False, own_registry=1.0), f"{LOST}|changed|twice"),
    "rule 6: what stands not registered again": Ablation(Variant(store=NothingStands, own_registry=1.0), TWICE),
    "rule 7: failed sync tried again": Ablation(Variant(store=FailedSyncRetried), f"{LOST}|changed|damaged"),
    "rule 7: output's tail not rewritten": Ablation(Variant(store=TailsNotRewritten), f"{LOST}|changed|damaged"),
    "rule 7: kept log not copied": Ablation(Variant(store=LogNotCopied), f"{LOST}|damaged"),
    "rule 13: redone said at start": Ablation(Variant(core=RedoneAtStart), TWICE),
    "rule 13: redone said when only answered": Ablation(Variant(core=RedoneWhenAnswered), TWICE),
    "rule 13: redone without the carried-over ids": Ablation(Variant(core=RedoneWithoutCarried), TWICE),
    "rule 13: redone of the incarnation that says it": Ablation(Variant(core=RedoneOfItself), TWICE),
    "rule 13: a place that is not synced": Ablation(
        Variant(core=RedoneWhenWritten, store=PlaceNotSynced, rots=1.0), EITHER
    ),
    "rule 13: the place of the start": Ablation(Variant(store=PlaceOfTheStart), TWICE),
    "rule 13: given up before the place was read": Ablation(Variant(recovery=NotRead), TWICE),
    "rule 13: reopened without compare": Ablation(Variant(registry=ReopensWithoutCompare), TWICE),
    "rule 13: reopened without a higher generation": Ablation(
        Variant(registry=ReopensWithoutGeneration, rots=1.0, late_inserts=0.5), LOST
    ),
    "rule 13: no recovery": Ablation(Variant(recovery=NoRecovery), LOST),
    "rule 8: verifier beyond the durable length": Ablation(Variant(verifier=VerifierBeyondDurable), LOST),
}
