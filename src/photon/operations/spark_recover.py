"""``photon spark recover``: combines a report, the registry, and the dispatchers whose state is on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from photon.assembly.copies import keeper
from photon.assembly.samples import same_samples
from photon.config.clock import SystemClock
from photon.config.disk import Disk
from photon.config.errors import UsageError
from photon.config.file_lock import alone
from photon.config.settings import Settings
from photon.config.tls import OPERATOR
from photon.dispatcher.replay.requests import Step
from photon.fleet.access import output_of, registry_of, tls_of
from photon.fleet.ledger import ledger_file
from photon.idregistry.client.deployment_key import deployment_key
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.core.outcomes import Refusal
from photon.objects.api import ObjectChanged
from photon.objects.disk import UrlDisk
from photon.objects.paths import ObjectPath, placed
from photon.objects.transfer import told as told_of_store
from photon.operations.replays import replays_of
from photon.outputs.every_file import FoundFile, files_below
from photon.outputs.output_places import COPIES_NAME, KINDS, OUTPUT_NAME
from photon.spark.outputs import place_of
from photon.spark.pipeline.journal import journal_of
from photon.spark.recover.journal import RegistrySilent, RepairProgress, Replayed, write_journal
from photon.spark.recover.marks import SlotMarks
from photon.spark.recover.planning import ATTENTION
from photon.spark.recover.repairing import Repairing, RepairRules
from photon.spark.recover.repairs import DIRECTORY, Repairs
from photon.spark.recover.replays import requests
from photon.spark.recover.report import VerifyReport, opened
from photon.spark.recover.unseen import SeenOutputs, seen_slots
from photon.spark.sources import output_source
from photon.spark.verify.verdict import fingerprint

LOCK_NAME = "recover.lock"
ASK_S = 10.0
RECORDS = tuple(kind for kind in KINDS if kind != "late")  # kinds of files with verdicts


@dataclass(frozen=True, slots=True)
class Recovery:
    """The results of this run and of earlier ones over the same report; in a dry run, what would be done."""

    report: VerifyReport
    progress: RepairProgress
    applied: bool
    refused: list[str] = field(default_factory=list)  # why damaged places are not marked, one line each

    @property
    def attention(self) -> dict[str, int]:
        """Outcomes that need a decision -> number of cases."""
        found: dict[str, int] = {}
        for classes in self.progress.counts.values():
            for counts in classes.values():
                for what in ATTENTION:
                    if counts.get(what):
                        found[str(what)] = found.get(str(what), 0) + counts[what]
        return found

    @property
    def unasked(self) -> list[Replayed]:
        """Ranges of dispatchers whose state is not on this machine."""
        return [each for each in self.progress.replays if not each.number] if self.applied else []


@dataclass(frozen=True, slots=True)
class Wish:
    """The operator's options. ``rate``: maximum ids a second to give up; ``gone``: slots whose missing files are
    permanently gone; ``config``: the deployment file's name, for messages."""

    report: Path
    apply: bool
    also_unmatched: bool
    rate: float
    gone: Collection[str] = ()
    config: str = "the deployment file"


def recover(settings: Settings, base: Path, wish: Wish, told: Callable[[RepairProgress], None]) -> Recovery:
    """``base``: the deployment file's directory. ``told``: called after each batch.

    Raises UsageError: the report does not exist, or belongs to another deployment; RegistrySilent, RepairsDamaged,
    StateError, OSError.
    """
    disk = UrlDisk()
    marks = _marks(settings, base, disk)
    with opened(disk, wish.report, fingerprint(settings, deployment_key(settings, base))) as report:
        if not wish.apply:
            progress = asyncio.run(_repair(settings, base, disk, report, marks, wish, told))
            would_ask = [*progress.replays, *_not_asked(progress)]
            return Recovery(report, msgspec.structs.replace(progress, replays=would_ask), False, marks.refused)
        disk.make_dir(base / DIRECTORY)
        busy = f"{base / DIRECTORY}: another photon spark recover works on this deployment; wait until it ends"
        with _alone(wish.report), alone(base / DIRECTORY / LOCK_NAME, busy):
            progress = asyncio.run(_repair(settings, base, disk, report, marks, wish, told))
            for each in _not_asked(progress):
                number = _ask(settings, base, each)
                done = msgspec.structs.replace(each, number=number)
                progress = msgspec.structs.replace(progress, replays=[*progress.replays, done])
                if number:
                    write_journal(disk, wish.report, progress)
    return Recovery(report, progress, True, marks.refused)


@contextmanager
def _alone(report: Path) -> Iterator[None]:
    """Raises UsageError if another repair works on the report. Below a URL two may run until one overwrites the
    other's journal, and ends. Raises ObjectsUnavailable."""
    busy = f"{report}: another photon spark recover works on it; wait until it ends"
    if not isinstance(report, ObjectPath):
        with alone(report / LOCK_NAME, busy):
            yield
        return
    with told_of_store(report):
        try:
            yield
        except ObjectChanged:
            raise UsageError(busy) from None


def _marks(settings: Settings, base: Path, disk: Disk) -> SlotMarks:
    keepers = {name: keeper(settings, name) for name in settings.datacentre}
    return SlotMarks(
        disk,
        {name: output_of(settings, base, name) for name in settings.datacentre},
        {name: each for name, each in keepers.items() if each is not None},
        datetime.now(UTC).isoformat(timespec="seconds"),
    )


async def _repair(
    settings: Settings,
    base: Path,
    disk: Disk,
    report: VerifyReport,
    marks: SlotMarks,
    wish: Wish,
    told: Callable[[RepairProgress], None],
) -> RepairProgress:
    clock = SystemClock()
    retention = settings.registry.retention
    rules = RepairRules(
        wish.also_unmatched, None if retention is None else int(retention * 1e9), wish.rate, wish.apply
    )
    repairs = Repairs(disk, base / DIRECTORY)
    async with registry_of(settings, tls_of(settings, base, OPERATOR)) as registry:
        join = report.verdict.join
        datacentres = [name for name, pipeline in settings.datacentre.items() if pipeline.join == join]
        await same_samples(settings, base, join, datacentres[0] if datacentres else "", registry)
        seen = await _seen(settings, base, report, wish, registry)
        files = _every_file(settings, base, report.verdict.join)
        return await Repairing(
            report, registry, registry.recovery, disk, repairs, marks, seen, files, clock, rules, told
        ).run()


# -- readable outputs ---------------------------------------------------------------------------------------------
async def _seen(
    settings: Settings, base: Path, report: VerifyReport, wish: Wish, registry: RegistryClient
) -> SeenOutputs:
    """Finds the outputs that readers can see. Raises RegistrySilent, PublishedDamaged, OSError."""
    known = await registry.recovery.list_slots(timeout=ASK_S)
    if isinstance(known, Refusal):
        why = registry.problem or known.reason or "no replica answers"
        raise RegistrySilent(f"the registry did not list the slots ({why}); start it and run this again")
    sources = [
        output_source(base, name, pipeline)
        for name, pipeline in settings.datacentre.items()
        if pipeline.join == report.verdict.join
    ]
    sites = {each.datacentre: seen_slots(UrlDisk(), place_of(each), report.verdict.window) for each in sources}
    others = {name for name, pipeline in settings.datacentre.items() if pipeline.join != report.verdict.join}
    slots = {each.name: each for each in known if each.datacentre not in others}
    return SeenOutputs(wish.config, sites, {each.datacentre: each.state for each in sources}, slots, wish.gone)


def _every_file(settings: Settings, base: Path, join: str) -> list[FoundFile]:
    """Returns files of all outputs of a join, and of the copies that its datacentres keep. Raises OSError."""
    disk, found = UrlDisk(), list[FoundFile]()
    for pipeline in settings.datacentre.values():
        if pipeline.join != join:
            continue
        copies = base / pipeline.state / COPIES_NAME
        own = placed(base, pipeline.output)
        kept = [copies / at / slot / OUTPUT_NAME for at in disk.names(copies) for slot in disk.names(copies / at)]
        for root in (own, *kept):
            found += files_below(disk, root, RECORDS)
    return found


# -- unregistered events -----------------------------------------------------------------------------------------
def _not_asked(progress: RepairProgress) -> list[Replayed]:
    """Returns ranges not yet requested. Call it once all findings are known, as a range is requested only once."""
    asked = {msgspec.structs.replace(each, number=0) for each in progress.replays if each.number}
    return [each for each in requests(progress.wanted) if each not in asked]


def _ask(settings: Settings, base: Path, wanted: Replayed) -> int:
    """Requests a replay; returns its number; 0 if its receiver's state is not here. Raises PhotonError, OSError."""
    pipeline = settings.datacentre.get(wanted.datacentre)
    if pipeline is None:
        return 0
    state = base / pipeline.state
    kept = journal_of(state, pipeline.spark_slot(wanted.datacentre)) if pipeline.on_spark else ledger_file(state)
    if not kept.exists():
        return 0
    replays = replays_of(settings, base, wanted.datacentre)
    same = (wanted.from_ns, wanted.to_ns, wanted.pattern)
    for each in replays.progress():  # killed after the request, before recording it
        request = each.request
        if request.step in (Step.ASKED, Step.RUNNING) and (request.from_ns, request.to_ns, request.pattern) == same:
            return request.number
    return replays.ask(*same)
