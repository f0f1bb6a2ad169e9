"""Describes where a deployment's data is, as plain data for Spark's jobs; needs no pyspark.

``join_source`` and the ``*_sources`` functions read the locations from a deployment file; callers may also give them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from photon.adapters.contract import Adapter
from photon.adapters.join_adapters import adapter_of
from photon.adapters.logs.slices import Reading
from photon.adapters.logs.unended_lines import RestRule
from photon.batch.columns import I64, Mask
from photon.config.errors import UsageError
from photon.config.settings import Pipeline, Settings
from photon.idregistry.client.deployment_key import deployment_key
from photon.objects.paths import placed
from photon.spark.shipped_adapter import AdapterSpec, adapter_spec


class JoinSource(msgspec.Struct, frozen=True, kw_only=True):
    """Everything needed to read a join's records: its adapter, and the key of its digests."""

    join: str
    adapter: AdapterSpec
    key: bytes

    def __repr__(self) -> str:
        return f"JoinSource(join={self.join!r})"  # keeps the key out of logs


class TimeRange(msgspec.Struct, frozen=True, kw_only=True):
    """Event times in [``begin_ns``, ``end_ns``); ``None`` means unbounded."""

    begin_ns: int | None = None
    end_ns: int | None = None
    slack_s: float = 3600.0  # a log whose last write is older than ``begin_ns`` by more than this is not opened

    def holds(self, times: I64) -> Mask:
        low = -(2**63) if self.begin_ns is None else self.begin_ns
        return (times >= low) & ((times < self.end_ns) if self.end_ns is not None else True)

    def meets(self, first_ns: int, last_ns: int) -> bool:
        """True if the range has a time in [``first_ns``, ``last_ns``]."""
        return (self.begin_ns is None or last_ns >= self.begin_ns) and (self.end_ns is None or first_ns < self.end_ns)

    def wider(self, ns: int) -> TimeRange:
        """Returns the range extended by ``ns`` on both sides."""
        begin, end = self.begin_ns, self.end_ns
        return msgspec.structs.replace(
            self, begin_ns=None if begin is None else begin - ns, end_ns=None if end is None else end + ns
        )


EVER = TimeRange()


class LogSource(msgspec.Struct, frozen=True, kw_only=True):
    """The raw logs of one side in one datacentre."""

    datacentre: str
    directory: str
    patterns: list[str] = msgspec.field(default_factory=lambda: ["**/*"])
    max_record: int = 1 << 20
    # Seconds after the last write until a last line without line end counts as a record
    last_line_after_s: float = 60.0
    # Of foreign logs: other events are left out. Of primary logs only the last writes are compared with it.
    window: TimeRange = TimeRange()


class OutputSource(msgspec.Struct, frozen=True, kw_only=True):
    datacentre: str
    # The output directory, with ``joined/`` and the others in it; or a URL below which ``photon sink objects`` has
    # put it.
    output: str
    # The pipeline's state directory: ``slots/`` and ``exports/`` in it have each file's readable length. Empty with
    # a URL.
    state: str = ""


class RegistrySource(msgspec.Struct, frozen=True, kw_only=True):
    """A registry export: a directory that ``photon registry backup`` made."""

    directory: str


@dataclass(frozen=True, slots=True)
class PipelineSources:
    """The sources of one join in all datacentres, or the given ones, ordered by datacentre name."""

    join: JoinSource
    foreign: list[LogSource]
    primary: list[LogSource]
    outputs: list[OutputSource]


def pipeline_sources(
    settings: Settings,
    base: Path,
    join: str,
    *,
    datacentres: Sequence[str] = (),
    window: TimeRange | None = None,
) -> PipelineSources:
    """Reads the sources from a deployment file; paths in it are relative to ``base``. Raises UsageError.

    ``window``: limits the foreign logs; primary logs are all read, as an event may name an old one.
    """
    pipelines = {
        name: pipeline
        for name, pipeline in sorted(settings.datacentre.items())
        if pipeline.join == join and (not datacentres or name in datacentres)
    }
    unknown = sorted(set(datacentres) - set(pipelines))
    if unknown or not pipelines:
        there = ", ".join(n for n, p in sorted(settings.datacentre.items()) if p.join == join) or "none"
        raise UsageError(f"datacentre {', '.join(unknown) or '?'}: no pipeline of join {join!r}; there are: {there}")
    return PipelineSources(
        join_source(settings, base, join),
        [_logs(settings, base, name, each, window, foreign=True) for name, each in pipelines.items()],
        [_logs(settings, base, name, each, None, foreign=False) for name, each in pipelines.items()],
        [output_source(base, name, each) for name, each in pipelines.items()],
    )


def join_source(settings: Settings, base: Path, join: str) -> JoinSource:
    """Returns the join's source. Raises UsageError if Spark cannot apply its rule for duplicates."""
    adapter = adapter_of(settings, join, base)
    if (rule := adapter.primary_duplicates) != "first":
        raise UsageError(
            f'join.{join}: primary.duplicates = "{rule}": verification, repair and backfill on Spark join each event '
            'to the first primary event of its key; they need "first"'
        )
    spec = adapter_spec(join, settings.join[join], base, settings.limits)
    return JoinSource(join=join, adapter=spec, key=deployment_key(settings, base))


def output_source(base: Path, datacentre: str, pipeline: Pipeline) -> OutputSource:
    output, state = _absolute(base, pipeline.output), _absolute(base, pipeline.state)
    return OutputSource(datacentre=datacentre, output=str(output), state=str(state))


def _logs(
    settings: Settings,
    base: Path,
    datacentre: str,
    pipeline: Pipeline,
    window: TimeRange | None,
    *,
    foreign: bool,
) -> LogSource:
    join = settings.join[pipeline.join]
    return LogSource(
        datacentre=datacentre,
        directory=str(_absolute(base, pipeline.foreign if foreign else pipeline.primary)),
        patterns=list(join.foreign_files if foreign else join.primary_files),
        max_record=int(settings.limits.record),
        last_line_after_s=float(join.last_line_after),
        window=window or TimeRange(),
    )


def _absolute(base: Path, path: str) -> Path:
    return placed(base, path).absolute()


def reading_of(source: LogSource, adapter: Adapter, *, foreign: bool) -> Reading:
    """Returns the way in which a source's logs are cut into records."""
    return Reading(
        patterns=tuple(source.patterns),
        has_header=adapter.foreign_has_header if foreign else adapter.primary_has_header,
        framing=adapter.foreign_framing if foreign else adapter.primary_framing,
        max_record=source.max_record,
        rest=RestRule(source.last_line_after_s, time.time_ns),
        links=adapter.foreign_links if foreign else adapter.primary_links,
    )
