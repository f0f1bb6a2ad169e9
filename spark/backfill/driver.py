"""The driver's side of a backfill, around Spark's tasks. No Spark here, so simulations run it as it is.

1. ``begin``: open the slot, a new incarnation, and announce it to every shard: attempts of earlier runs win nothing
   more. Repeat the batches that earlier runs left, under their tokens.
2. Spark's tasks stage, insert and write (``attempt``).
3. ``settle``: open once more. From here on no attempt wins anything, not even a speculative one still running, so the
   list of staged batches is final. Batches without a result are repeated under their tokens.
4. ``publish``: output files get their names, then the manifest is replaced; ``show``: readers of a URL get theirs.
5. ``clear``: clear the tokens of all records in the manifest (rule 8). 6. ``tidy``: remove the staging.

If a run is interrupted in steps 5 or 6, the next one completes them and no longer changes the manifest. Below a URL
there is no lock: a run records in ``runs.json`` that it publishes, which fails if another run has begun; there the
next run also completes an interrupted step 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.idregistry.api import I64, U8, U64, Answer, Registry, Slot
from photon.joiner.slot.identity import open_incarnation
from photon.outputs.mirrored import MANIFEST, MirroredFile, manifest_bytes
from photon.spark.backfill.attempt import BatchShell
from photon.spark.backfill.batch_names import HOUR_NS, KIND_OF_DIRECTORY, STAGED_SUFFIX, BackfillPaths, BatchName
from photon.spark.backfill.core import BatchCore
from photon.spark.backfill.manifest import (
    FILES_MAX,
    BackfillFile,
    BackfillRuns,
    Manifest,
    read_manifest,
    read_runs,
    write,
)
from photon.spark.backfill.parts import HIDDEN, UNREGISTERED, Encode, PartWriter
from photon.spark.backfill.staging import (
    Part,
    Result,
    read_ids,
    read_result,
    read_staged,
    result_paths,
    staged_batches,
)

INTRODUCE_S = 5.0
CLEAR_S = 10.0
CLEAR_IDS = 16_384
ANNOUNCED_MAX = 250  # incarnations that one run announces; a slot with more runs is exhausted


class FencingRegistry(Registry, Protocol):
    """A registry that can announce the newest incarnation to every shard."""

    async def introduce(self, *, timeout: float) -> bool:
        """True if every shard has heard of the announced incarnations; False means unknown: ask again."""
        ...


class ClearsTokens(Protocol):
    async def clear(self, digests: bytes, times: I64, tokens: U64, *, timeout: float) -> U8: ...


class BackfillFailed(PhotonError):
    """The run ends; a new run continues where it stopped."""


@dataclass(frozen=True, slots=True)
class DriverLimits:
    """How long a driver keeps trying, in seconds."""

    registry_s: float = 300.0


class Driver:
    """One run. Holds no records: batches are done one at a time."""

    def __init__(
        self,
        disk: Disk,
        places: BackfillPaths,
        slot: Slot,
        registry: FencingRegistry,
        clock: Clock,
        *,
        encode: Encode,
        suffix: str,
        draw_nonce: Callable[[], bytes],
        pause: Callable[[float], Awaitable[None]],
        limits: DriverLimits | None = None,
    ) -> None:
        self._disk = disk
        self._places = places
        self._slot = slot
        self._registry = registry
        self._clock = clock
        self._encode = encode
        self._suffix = suffix
        self._draw_nonce = draw_nonce
        self._pause = pause
        self._limits = limits or DriverLimits()
        self.incarnations: list[int] = []  # incarnations of all runs; the newest one is this driver's
        self._counts: dict[str, int] | None = None  # as in ``runs.json``: counts of the run that publishes
        self.redone = 0  # batches of discarded attempts that this run did again

    @property
    def incarnation(self) -> int:
        return self.incarnations[-1]

    # -- the steps ----------------------------------------------------------------------------------------------
    async def begin(self) -> Manifest | None:
        """Returns the manifest if an earlier run has published it: only ``clear`` and ``tidy`` remain then.

        Otherwise the incarnation is open for tasks. Raises SlotRefused, BackfillFailed, OSError and errors of
        staging.
        """
        self._disk.make_dir(self._places.staging)
        await self._open()
        manifest = read_manifest(self._disk, self._places.manifest)
        if manifest is None:
            await self._redo()
            if self._counts is not None:
                manifest = await self.publish(self._counts)
        return manifest

    async def settle(self) -> None:
        """Call after the last task: writes every won record to the output. Raises as ``begin``."""
        await self._open()
        await self._redo()

    async def publish(self, counts: dict[str, int], unregistered: Sequence[Part] = ()) -> Manifest:
        """Call after ``settle``. Raises BackfillFailed, OSError."""
        if self._places.url and self._counts is None:
            self._counts = counts
            self._keep_runs()
        self._drop_unregistered({part.name for part in unregistered})
        files: list[BackfillFile] = []
        directories = set()
        for batch, part in self._parts(unregistered):
            directories.add((self._places.output / part.name).parent)
            self._name(part)
            files.append(
                BackfillFile(
                    part.name, part.kind, part.hour, part.records, part.bytes, part.crc32, batch,
                    part.uncompressed_bytes,
                )
            )  # fmt: skip
            if len(files) > FILES_MAX:
                raise BackfillFailed(f"more than {FILES_MAX} output files; take a shorter range")
        for directory in sorted(directories):
            await self._pause(0.0)
            self._disk.sync_dir(directory)
        await self._check_newest()
        manifest = Manifest(self._slot.name, self.incarnation, files, counts)
        await self._pause(0.0)
        write(self._disk, self._places.manifest, manifest)
        return manifest

    def show(self, manifest: Manifest) -> None:
        """Shows the output to readers of a URL. Raises OSError; ObjectChanged if another output is shown there."""
        if self._places.url:
            shown = (
                MirroredFile(
                    file=file.name, bytes=file.bytes, uncompressed_bytes=file.lines_bytes,
                    first_ns=file.hour * HOUR_NS, last_ns=(file.hour + 1) * HOUR_NS - 1,
                )
                for file in manifest.files
            )  # fmt: skip
            self._disk.replace(self._places.output / MANIFEST, manifest_bytes(shown))

    async def clear(self, manifest: Manifest) -> int:
        """Clears the tokens of all records in the manifest and returns the number of ids. Raises BackfillFailed."""
        return await self.clear_batches(sorted({file.batch for file in manifest.files if file.batch}))

    async def clear_batches(self, batches: Iterable[str]) -> int:
        deadline, places = self._patience(), self._places
        return await clear_staged(self._disk, places, self._registry, batches, deadline, self._clock, self._pause)

    async def tidy(self, manifest: Manifest) -> None:
        """Removes the staging of this run and earlier ones, and the hidden parts of discarded attempts.

        Batches go first: a batch without a result would be repeated, while a result without a batch is ignored.
        """
        names = self._disk.names(self._places.staging)
        for name in sorted(names, key=lambda each: not each.endswith(STAGED_SUFFIX)):
            if BatchName.parse(name.partition(".")[0]).incarnation <= self.incarnation:
                await self._pause(0.0)
                self._disk.remove(self._places.staging / name)
        self._disk.sync_dir(self._places.staging)
        if self._places.url:
            named = {file.name for file in manifest.files}
            for kind in KIND_OF_DIRECTORY:
                for name in self._disk.names(self._places.output / kind):
                    if f"{kind}/{name}" not in named:
                        self._disk.remove(self._places.output / kind / name)
            return
        for directory in sorted({(self._places.output / file.name).parent for file in manifest.files}):
            for name in self._disk.names(directory):
                if name.startswith(HIDDEN):
                    self._disk.remove(directory / name)

    # -- inside -------------------------------------------------------------------------------------------------
    def _drop_unregistered(self, kept: Collection[str]) -> None:
        """Removes unregistered parts that an earlier run named but did not publish."""
        if self._places.url:
            return
        for kind in KIND_OF_DIRECTORY:
            for hour in self._disk.names(self._places.output / kind):
                for name in self._disk.names(self._places.output / kind / hour):
                    if name.startswith(f"part-{UNREGISTERED}") and f"{kind}/{hour}/{name}" not in kept:
                        self._disk.remove(self._places.output / kind / hour / name)

    async def _open(self) -> None:
        """Opens a new incarnation that every shard knows: inserts of all earlier ones are refused from here on."""
        runs = read_runs(self._disk, self._places.runs)
        past, self._counts = runs.incarnations, runs.counts
        if len(past) >= ANNOUNCED_MAX:
            raise BackfillFailed(
                f"{self._places.output}: {len(past)} runs were begun; find out why they fail, take another --output"
            )
        opened = await open_incarnation(
            self._disk,
            self._places.slot,
            self._slot,
            self._registry,
            draw_nonce=self._draw_nonce,
            pause=self._pause,
        )
        self.incarnations = [*past, opened.incarnation]
        self._keep_runs()
        self._registry.announce(self._slot, self.incarnations)
        await self._introduce()

    def _keep_runs(self) -> None:
        write(self._disk, self._places.runs, BackfillRuns(self.incarnations, self._counts))

    async def _introduce(self) -> None:
        deadline = self._patience()
        while not await self._registry.introduce(timeout=INTRODUCE_S):
            if self._clock.monotonic() >= deadline:
                raise BackfillFailed("the registry does not answer; run the same command again once it does")
            await self._pause(0.1)

    async def _check_newest(self) -> None:
        """An overtaken driver must not show anything: without reliable locks two drivers may be running."""
        deadline = self._patience()
        while (witnessed := await self._registry.read_witness(self._slot.name)) is None:
            if self._clock.monotonic() >= deadline:
                raise BackfillFailed("the registry does not answer; run the same command again once it does")
            await self._pause(0.1)
        if witnessed.newest != self.incarnation or read_manifest(self._disk, self._places.manifest) is not None:
            raise BackfillFailed(f"{self._places.output}: another run has taken over; leave it to that one")

    async def _redo(self) -> None:
        """Repeats batches without a usable result, one at a time, under their own tokens."""
        results = result_paths(self._disk, self._places)
        writer = f"{self.incarnation:06x}"
        parts = PartWriter(self._disk, self._places, writer, self._encode, self._suffix)
        shell = BatchShell(
            self._disk, self._places, self._registry, self._clock, parts, writer=writer, pause=self._pause
        )
        for batch in staged_batches(self._disk, self._places):
            if batch in results:
                if self._usable(read_result(self._disk, results[batch])):
                    continue
                self._disk.remove(results[batch])
            rows = read_staged(self._disk, self._places.staged(batch))
            core = BatchCore(rows, self.incarnations, self._patience(), asked_before=True)
            await shell.run(batch, core, rows)
            self.redone += 1

    def _usable(self, result: Result) -> bool:
        """True if all parts of a result exist."""
        return all(self._place(part) for part in result.parts)

    def _place(self, part: Part) -> str:
        """Where a part is: under its own name once published; empty if it is missing."""
        for name in (part.written, part.name):
            path = self._places.output / name
            if self._disk.exists(path) and self._disk.size(path) == part.bytes:
                return name
        return ""

    def _parts(self, unregistered: Sequence[Part]) -> Iterable[tuple[str, Part]]:
        for path in result_paths(self._disk, self._places).values():
            result = read_result(self._disk, path)
            yield from ((result.batch, part) for part in result.parts)
        yield from (("", part) for part in unregistered)

    def _name(self, part: Part) -> None:
        place = self._place(part)
        if not place:
            raise BackfillFailed(f"{self._places.output / part.name}: is gone or cut; run the same command again")
        if place != part.name:
            self._disk.rename(self._places.output / place, self._places.output / part.name)

    def _patience(self) -> float:
        return self._clock.monotonic() + self._limits.registry_s


async def clear_staged(
    disk: Disk,
    places: BackfillPaths,
    registry: ClearsTokens,
    batches: Iterable[str],
    deadline: float,
    clock: Clock,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> int:
    """Clears the ids that these batches won; any process may call it. A batch without staging was cleared before.

    Raises BackfillFailed, StagingDamaged.
    """
    cleared = 0
    results = result_paths(disk, places)
    for name in batches:
        batch = BatchName.parse(name)
        if batch in results and disk.exists(places.staged(batch)):
            result = read_result(disk, results[batch])
            cleared += await _clear(disk, places, registry, batch, result, deadline, clock, pause)
    return cleared


async def _clear(
    disk: Disk,
    places: BackfillPaths,
    registry: ClearsTokens,
    batch: BatchName,
    result: Result,
    deadline: float,
    clock: Clock,
    pause: Callable[[float], Awaitable[None]],
) -> int:
    """Clears the ids that one batch won; its records are published. Raises BackfillFailed."""
    ids = read_ids(disk, places.staged(batch))
    left = result.winners()
    total = len(left)
    while len(left):
        some = left[:CLEAR_IDS]
        digests = np.frombuffer(ids.digests, "V16")[some].tobytes()
        tokens = np.full(len(some), ids.token, np.uint64)
        answers = await registry.clear(digests, ids.times[some], tokens, timeout=CLEAR_S)
        if (answers == Answer.REFUSED).any():
            raise BackfillFailed(
                f"batch {batch}: {int((answers == Answer.REFUSED).sum())} published ids are not this backfill's in "
                "the registry; keep the output and run photon spark verify over the range"
            )
        left = np.concatenate([some[answers == Answer.UNKNOWN], left[CLEAR_IDS:]])
        if len(left) and (answers == Answer.UNKNOWN).any():
            if clock.monotonic() >= deadline:
                raise BackfillFailed("the registry does not answer; run the same command again once it does")
            await pause(0.1)
    return total
