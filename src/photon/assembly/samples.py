"""Checks at each start of a reader that the adapter still derives the same ids, keys and times.

User code cannot be reliably hashed. Instead, the registry keeps the values that were derived from early records of
the first and the newest logs (``idregistry/core/samples.py``). Before a reader asks for an id, it derives the values
again from the same records in its own logs, and stops if an id, key or time differs. Records that it does not find
are skipped. Configured adapters are not sampled: their rule is their configuration, which is hashed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.containment import Guard
from photon.adapters.contract import Adapter, LogFile
from photon.adapters.join_adapters import adapter_of
from photon.adapters.loader import code_of
from photon.adapters.logs.discovery import compile_patterns, discover
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.identity import BOM, log_name
from photon.adapters.logs.problems import LogDirectoryError, ProblemReporter
from photon.adapters.shown_records import shown_record
from photon.config.clock import Clock, SystemClock
from photon.config.errors import PhotonError, UsageError
from photon.config.settings import SIDES, Settings, Side
from photon.config.stopping import until
from photon.config.structured import get_logger
from photon.idregistry.api import Digester
from photon.idregistry.client.deployment_key import deployment_key
from photon.idregistry.core import commands as c
from photon.idregistry.core.outcomes import Refusal
from photon.joiner.foreign_columns import headers_of
from photon.objects.paths import placed

if TYPE_CHECKING:
    from photon.adapters.logs.api import Block
    from photon.idregistry.client.routing import RoutedRegistry

FILES_MAX = 32  # maximum number of files to check on each side, the newest
LOOK_BYTES = 64 << 10  # samples are taken from this many bytes at the beginning of a log
READ_BYTES_MAX = 32 << 20  # maximum number of bytes to read on each side; several files may be copies of one log
GAP_S = 1.0  # pause between two reports of new logs; if many begin at once, a few samples suffice
ASK_S = 2.0
ANSWER_S = 10.0  # how long a command waits for the registry

# Adds samples to the kept ones; returns all of them.
Keep = Callable[[Sequence[c.Sample]], Awaitable["tuple[c.Sample, ...] | Refusal"]]

log = get_logger(__name__)
Answer = TypeVar("Answer")


async def answered(
    ask: Callable[[], Awaitable[Answer | Refusal]], stop: asyncio.Event, pause_s: float, *, patient: bool = True
) -> Answer | None:
    """Asks the registry until it answers, or only once unless ``patient``. Returns `None` if it does not answer or
    ``stop`` came first."""
    said = ""
    while not stop.is_set():
        answer = await ask()
        if not isinstance(answer, Refusal):
            return answer
        if answer.reason != said:
            log.warning("waiting for the registry", problem=answer.reason)
        said = answer.reason
        if not patient or await until(stop, pause_s):
            break
    return None


class Logs(NamedTuple):
    """The log directory of one side, and the patterns of its files."""

    directory: Path
    patterns: Sequence[str]


class Found(NamedTuple):
    """A sampled record, and the values that the current configuration derives from it."""

    sample: c.Sample
    file: LogFile
    record: bytes


def in_registry(registry: RoutedRegistry, join: str, datacentre: str) -> Keep:
    async def keep(samples: Sequence[c.Sample]) -> tuple[c.Sample, ...] | Refusal:
        return await registry.recovery.keep_samples(join, datacentre, samples, timeout=ASK_S)

    return keep


def logs_of(settings: Settings, join: str, directories: Mapping[Side, Path]) -> dict[Side, Logs]:
    configured = settings.join[join]
    patterns = {"primary": configured.primary_files, "foreign": configured.foreign_files}
    return {side: Logs(directory, patterns[side]) for side, directory in directories.items()}


def compare_here(settings: Settings, base: Path, join: str, known: Sequence[c.Sample]) -> None:
    """Compares samples with values derived from this machine's logs of all datacentres. Raises UsageError."""
    adapter, digester = adapter_of(settings, join, base), Digester(deployment_key(settings, base), join)
    for pipeline in settings.datacentre.values():
        if pipeline.join == join and known:
            logs = logs_of(settings, join, {side: placed(base, pipeline.logs(side)) for side in SIDES})
            Samples(_keeps_nothing, join, adapter, digester, logs).compare(known)


async def same_samples(settings: Settings, base: Path, join: str, datacentre: str, registry: RoutedRegistry) -> None:
    """Like `compare_here`, for the samples in the registry. Raises UsageError; PhotonError if the registry does not
    answer."""
    known = await registry.recovery.keep_samples(join, datacentre, (), timeout=ANSWER_S)
    if isinstance(known, Refusal):
        raise PhotonError(f"the registry did not return its sampled records ({known.reason}); run this again")
    await asyncio.to_thread(compare_here, settings, base, join, known)


async def _keeps_nothing(samples: Sequence[c.Sample]) -> tuple[c.Sample, ...]:
    return ()


class Samples:
    """Compares and keeps the samples of one join. Call ``begin`` before asking for an id, and ``began`` with each
    block before processing it."""

    def __init__(
        self,
        keep: Keep,
        join: str,
        adapter: Adapter,
        digester: Digester,
        logs: Mapping[Side, Logs],
        clock: Clock | None = None,
    ) -> None:
        self._keep, self._join, self._adapter, self._digester, self._logs = keep, join, adapter, digester, logs
        self._clock = clock or SystemClock()
        self._own_code = type(adapter) is not ConfiguredAdapter
        self._next: dict[str, float] = {}  # side -> time of the next report of new logs

    async def begin(self, stop: asyncio.Event) -> bool:
        """Compares the kept samples with the logs here. Returns False if ``stop`` came first. Raises UsageError if a
        value differs."""
        if not self._own_code:
            return True
        log.info("audit", request="runs an adapter's code", join=self._join, adapter=code_of(self._adapter))
        known = await self._asked((), stop)
        if known is None:
            return False
        await asyncio.to_thread(self.compare, known)
        return True

    async def keep_first(self, side: Side, stop: asyncio.Event) -> None:
        """Keeps samples of the current logs if the registry has none of this side."""
        known = await self._asked((), stop) if self._own_code else None
        if known is None or any(each.side == side for each in known):
            return
        await self.keep(await asyncio.to_thread(self._first, side), stop)

    def began(self, side: Side, blocks: Sequence[Block]) -> list[Found]:
        """Returns samples to keep before these blocks are processed: one record of each log that begins in one of
        them."""
        if not self._own_code or not any(map(_is_begin, blocks)) or self._is_early(side):
            return []
        found = []
        for block in blocks:
            if _is_begin(block):
                made = (self.made(side, block.file, record) for record in _records(block.data[:LOOK_BYTES]))
                found += [first] if (first := next(filter(None, made), None)) is not None else []
        return found[-c.MAX_SAMPLES :]

    def _is_early(self, side: Side) -> bool:
        return self._clock.monotonic() < self._next.get(side, float("-inf"))

    async def keep(self, found: Sequence[Found], stop: asyncio.Event, *, patient: bool = True) -> bool:
        """Adds samples to the kept ones. Unless ``patient``, returns False if the registry does not answer.

        Raises UsageError if another process derived different values from one of the records.
        """
        if not found:
            return True
        known = await self._asked([each.sample for each in found], stop, patient=patient)
        self._next[found[0].sample.side] = self._clock.monotonic() + GAP_S
        for each in found if known is not None else ():
            self._compare(known or (), each)
        return known is not None

    async def _asked(
        self, samples: Sequence[c.Sample], stop: asyncio.Event, *, patient: bool = True
    ) -> tuple[c.Sample, ...] | None:
        return await answered(lambda: self._keep(samples), stop, ASK_S, patient=patient)

    def compare(self, known: Sequence[c.Sample]) -> None:
        """Compares samples with the values derived from the same records in the logs here. Raises UsageError."""
        for side in SIDES:
            records = {each.record: each.log for each in known if each.side == side}
            if not records or side not in self._logs:
                continue
            for file, record in self._first_records(side, set(records.values())):
                if self._digest(file, record) in records and (made := self.made(side, file, record)) is not None:
                    self._compare(known, made)

    def _compare(self, known: Sequence[c.Sample], made: Found) -> None:
        now = made.sample
        for before in known:
            if (before.side, before.record) == (now.side, now.record) and (differs := difference(before, now)):
                shown = shown_record(self._adapter, made.record, made.file)
                raise UsageError(
                    f"join {self._join}: the adapter now derives another {differs} from the record "
                    f"{_text(shown or b'')} in {made.file.path}, so events would be joined twice or not at all: "
                    "restart with the former adapter, or give the join a new name"
                )

    def _first(self, side: Side) -> list[Found]:
        """Returns a sample of the first event of each log here."""
        found: dict[str, Found] = {}
        for file, record in self._first_records(side, None):
            if file.path not in found and (made := self.made(side, file, record)) is not None:
                found[file.path] = made
        return list(found.values())

    def made(self, side: Side, file: LogFile, record: bytes) -> Found | None:
        """Derives the values of a record. Returns `None` if the record is not an event or cannot be read."""
        adapter, digest = self._adapter, self._digester.digest
        event_id: bytes | None = None
        if side == "foreign":
            headers = headers_of([record], file, adapter)
            if headers.others:
                return None
            ((key, time_ns, event_id),) = zip(headers.keys, headers.times, headers.ids, strict=True)
        else:
            given: object = Guard(adapter).many(lambda: adapter.primary_keys(record + b"\n", file))
            if not isinstance(given, list) or len(given) != 1 or not isinstance(given[0], bytes) or not given[0]:
                return None
            key, time_ns = given[0], 0
        shown = 0 if adapter.hides else c.SHOWN_BYTES_MAX
        sample = c.Sample(
            side,
            _name(file.path),
            self._digest(file, record),
            digest(key),
            b"" if event_id is None else digest(event_id),
            time_ns,
            key[:shown],
            (event_id or b"")[:shown],
        )
        return Found(sample, file, record)

    def _digest(self, file: LogFile, record: bytes) -> bytes:
        return self._digester.digest(b"\0".join((log_name(file.path).encode(), file.header, record)))

    def _first_records(self, side: Side, names: set[str] | None) -> Iterator[tuple[LogFile, bytes]]:
        """Yields the first records of the logs with these names; `None` means all logs."""
        adapter, (directory, patterns) = self._adapter, self._logs[side]
        primary = side == "primary"
        has_header = adapter.primary_has_header if primary else adapter.foreign_has_header
        framing = adapter.primary_framing if primary else adapter.foreign_framing
        links = adapter.primary_links if primary else adapter.foreign_links
        try:
            files = discover(directory, compile_patterns(patterns), ProblemReporter(None), links=links)
        except (OSError, LogDirectoryError):
            return  # the log reader reports such errors
        named = [each for each in files if names is None or _name(each.path) in names]
        chosen = sorted(named, key=lambda each: each.mtime_ns)[-FILES_MAX:]
        if not chosen:
            return
        exactly = [re.sub(r"[*?[]", r"[\g<0>]", each.path) for each in chosen]
        seen, left = set[str](), READ_BYTES_MAX
        with closing(
            Follower(directory, patterns=exactly, has_header=has_header, framing=framing, links=links)
        ) as follower:
            follower.scan()
            while len(seen) < len(chosen) and left > 0 and (blocks := follower.poll(1, final=True)):
                for block in blocks:
                    left -= len(block.data)
                    if block.identity not in seen:
                        seen.add(block.identity)
                        yield from ((block.file, record) for record in _records(block.data[:LOOK_BYTES]))


def difference(before: c.Sample, now: c.Sample) -> str:
    """Describes the first difference with both values; empty if there is none."""
    if before.id != now.id:
        was, now_is = (_value(each.id_shown, each.id, "its place") for each in (before, now))
        return f"id: {was} before and {now_is} now,"
    if before.key != now.key:
        was, now_is = (_value(each.key_shown, each.key) for each in (before, now))
        return f"key: {was} before and {now_is} now,"
    if before.time_ns != now.time_ns:
        was, now_is = (_moment(each.time_ns) for each in (before, now))
        return f"event time: {was} before and {now_is} now,"
    return ""


def _value(shown: bytes, digest: bytes, none: str = "") -> str:
    return _text(shown) if shown else f"a value with digest {digest.hex()[:8]}" if digest else none


def _moment(time_ns: int) -> str:
    try:
        return f"{datetime.fromtimestamp(time_ns // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{time_ns % 10**9:09d}Z"
    except (ValueError, OverflowError, OSError):
        return f"{time_ns} ns"


def _text(value: bytes) -> str:
    """Returns the value as one line, cut off at SHOWN_BYTES_MAX bytes."""
    text = ascii(value[: c.SHOWN_BYTES_MAX].decode("utf-8", "backslashreplace"))
    return text if len(value) <= c.SHOWN_BYTES_MAX else f"{text}…"


def _name(path: str) -> str:
    return log_name(path)[: c.MAX_NAME_BYTES]


def _is_begin(block: Block) -> bool:
    return block.offset <= len(BOM) + len(block.file.header) + 2


def _records(data: bytes) -> list[bytes]:
    return [line.removesuffix(b"\r") for line in data.split(b"\n")[:-1]]
