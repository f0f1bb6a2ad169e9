"""``photon serve sink``: writes a datacentre's published records to the target that ``[sink.NAME]`` names, until the
process is stopped.

It runs the sinks of ``photon sink`` as with ``--follow``. If the target fails, the process stays responsive, reports
the problem in one line, and retries: the sink's position is stored at the target, so nothing is written twice.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from photon.assembly.room import Room
from photon.config.back_off import BackOff
from photon.config.disk import RealDisk
from photon.config.errors import PhotonError, UsageError
from photon.config.metrics.readings import ProcessMetrics, Readings
from photon.config.roles import Role
from photon.config.settings import Settings, SinkSettings
from photon.config.stopping import first, until
from photon.config.structured import get_logger
from photon.config.topic_address import client_settings, is_topic, topic_address
from photon.fleet.access import output_here
from photon.library import Batch, Output
from photon.objects.costs import put_costs
from photon.objects.paths import ObjectPath, placed
from photon.objects.transfer import ObjectsUnavailable
from photon.sinks.rolling import RollLimits
from photon.sinks.transactions import COMMIT_BYTES, pour_into

if TYPE_CHECKING:
    from photon.sinks.transactions import Target

AGAIN = BackOff(first=2.0, most=30.0)  # pause before a failed sink is retried
COMMIT_S = 1.0  # pending records are committed to servers this long after the first one

log = get_logger(__name__)


@dataclass(slots=True)
class Standing:
    """The state of the process's sink, for status and metrics. Thread-safe."""

    name: str
    into: str
    bytes: int = 0
    problem: str = ""
    since_s: float = 0.0
    went_on: bool = False  # True if it has worked before, so that its configuration may be right

    def told(self, problem: str) -> None:
        """Records a problem; an empty text means that the sink works again."""
        if problem and not self.problem:
            self.since_s = time.monotonic()
        if problem != self.problem:
            if problem:
                log.warning("the sink waits", sink=self.name, why=problem)
            else:
                log.info("the sink continues", sink=self.name)
        self.problem = problem
        self.went_on = self.went_on or not problem

    async def read(self, into: Readings) -> None:
        """Adds the sink's metrics, as a Source."""
        stalled_s = time.monotonic() - self.since_s if self.problem else 0.0
        into.put_all("photon_sink", {"bytes_total": self.bytes, "stalled_seconds": stalled_s})

    async def costs(self, into: Readings) -> None:
        """Adds the object stores' costs as metrics, as a Source."""
        put_costs(into)

    def details(self) -> dict[str, Any]:
        return {"sink": self.name, "into": self.into, "problem": self.problem}


async def serve_sink(room: Room) -> None:
    """Runs a sink until told to stop. Raises UsageError."""
    name, own = room.one_of("sink", {name: (name, each) for name, each in room.settings.sink.items()})
    standing = Standing(name, own.into)
    work = _Work(room.settings, room.base, name, own, standing)
    metrics = ProcessMetrics([standing.read, standing.costs], standing.details)
    tls = None if own.address is None else room.tls(Role.SINK, name)
    async with room.answering("sink", own.address, metrics, tls):
        log.info("sink serves", sink=name, into=own.into)
        room.up()
        pauses = AGAIN.pauses()
        while not room.stop.is_set():
            begun_s = time.monotonic()
            await work.run(room.stop)
            if time.monotonic() - begun_s > AGAIN.most:
                pauses = AGAIN.pauses()
            await until(room.stop, next(pauses))


@dataclass(slots=True)
class _Work:
    settings: Settings
    base: Path
    name: str
    own: SinkSettings
    standing: Standing
    ending: threading.Event = field(default_factory=threading.Event)

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until ``stop`` is set, or a failure. Raises UsageError only if the sink has never worked, as then the
        configuration must be wrong; later the target has changed, and it may change back."""
        running = asyncio.create_task(asyncio.to_thread(self._run))
        await first(stop, [running])
        if stop.is_set():
            self.ending.set()
        try:
            await running
        except ObjectsUnavailable as error:
            self.standing.told(error.what)
        except (PhotonError, OSError) as error:
            if isinstance(error, UsageError) and not self.standing.went_on:
                raise
            self.standing.told(str(error))

    def _run(self) -> None:
        into = self.own.into
        if is_topic(into):
            self._into_server(self._kafka())
        elif into.startswith(("postgresql:", "postgres:")):
            self._into_server(self._postgres())
        elif isinstance(place := placed(self.base, into), ObjectPath):
            self._into_objects(place)
        else:
            self._into_parquet(place)

    @property
    def output(self) -> Output:
        datacentre = self.own.datacentre or next(iter(self.settings.datacentre))
        return Output(output_here(self.settings, self.base, datacentre))

    def _batches(self, cursor: bytes | None, sleep: Callable[[float], object]) -> Iterator[Batch]:
        found = self.output.batches(
            kinds=self.own.kinds, cursor=cursor, follow=True, until=self.ending.is_set, sleep=sleep
        )
        for batch in found:
            self.standing.bytes += len(batch.data)
            yield batch

    def _kafka(self) -> Callable[[], Target]:
        from photon.sinks.kafka import KafkaTarget

        own, client = self.own, self.own.client
        topic = topic_address(own.into, f"sink.{self.name}.into")
        settings = client_settings(None if client is None else self.base / client)
        return lambda: KafkaTarget(topic, self.name, own.kinds, settings)

    def _postgres(self) -> Callable[[], Target]:
        from photon.sinks.postgres import PostgresTarget

        return lambda: PostgresTarget(self.own.into, self.own.table or self.name, self.name, self.own.kinds)

    def _into_server(self, connect: Callable[[], Target]) -> None:
        limits = RollLimits(COMMIT_BYTES, COMMIT_S)
        pour_into(
            connect, self._batches, limits, wait=self.ending.wait, monotonic=time.monotonic, say=self.standing.told
        )

    def _into_objects(self, into: ObjectPath) -> None:
        from photon.sinks.objects import ObjectSink, follow

        before = self.standing.bytes

        def wrote(size: int) -> None:
            self.standing.bytes = before + size

        sink = ObjectSink(RealDisk(), self.output.place, into, self.own.kinds)
        follow(sink, self.ending.wait, self.standing.told, wrote)

    def _into_parquet(self, into: Path) -> None:
        from photon.sinks.parquet import Form, ParquetSink, pour

        limits, form = RollLimits(), Form()
        kinds = tuple(self.own.kinds)
        with ParquetSink(RealDisk(), into, kinds, limits, time.monotonic, form, self._say) as files:

            def idle(seconds: float) -> None:
                if self.standing.problem:  # only a roll shows whether it is over, and the next is minutes away
                    files.roll()
                files.tick()
                self.standing.told("")
                self.ending.wait(seconds)

            pour(self._batches(files.cursor, idle), files)

    def _say(self, line: str) -> None:
        log.info(line, sink=self.name)
