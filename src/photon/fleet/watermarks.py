"""Reads the watermarks of a deployment: of each datacentre, and combined over all datacentres of a join.

Reads the journals of states on this machine, and asks the verifiers of the others.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from photon.config.disk import RealDisk
from photon.config.errors import PhotonError
from photon.config.settings import Settings
from photon.config.tls import Tls
from photon.dispatcher.database import STATE_NAME
from photon.dispatcher.undecided import read_undecided
from photon.fleet.polling import Gatherer, Heard, gathered
from photon.fleet.processes import of_datacentre
from photon.outputs.cursor import Cursor
from photon.outputs.watermarks import JOURNAL, Pair, PairsHeard, decode, late_in, pairs_of, read_journal
from photon.spark.pipeline.claim import read_claimed
from photon.spark.pipeline.journal import journal_of
from photon.verifier.watermark import Asked

ASK_EVERY_S = 0.25
FIRST_S = 3.0  # longer than the time limit of one request


def undecided_of(state: Path, slot: str | None) -> AbstractContextManager[Asked | None]:
    """Opens the undecided events of a datacentre's dispatchers, or of its join on Spark, which writes ``slot``.
    Yields `None` until they have reported.

    Raises StateError, JournalDamaged, OSError on entering.
    """
    if slot is not None:
        return read_claimed(RealDisk(), journal_of(state, slot))
    return read_undecided(state / STATE_NAME)


@dataclass(frozen=True, slots=True)
class DatacentreWatermark:
    datacentre: str
    join: str
    state: Path
    pair: Pair | None
    late_records: int = 0
    problem: str = ""  # why there are no watermarks
    percentile_moved_ns: int = 0
    exact_moved_ns: int = 0  # when the pair's times were first reported (wall clock)
    slot: str | None = None  # slot of the join on Spark; `None` if services join

    def waiting_before(self, time_ns: int) -> int | None:
        """Returns how many events before this time have no verdict, from the state; `None` if unknown."""
        try:
            with undecided_of(self.state, self.slot) as found:
                return None if found is None else found.before(time_ns)
        except PhotonError:
            return None


@dataclass(frozen=True, slots=True)
class JoinWatermark:
    """The lowest watermark of a join over all datacentres in the deployment file. A silent datacentre holds it
    back."""

    join: str
    exact_ns: int | None
    percentile_ns: int | None
    waiting: int  # maximum over datacentres, because each one reads every event
    held_by: tuple[str, ...]


async def watermarks(
    settings: Settings, base: Path, datacentres: Sequence[str], tls: Callable[[], Tls | None]
) -> list[DatacentreWatermark]:
    """Returns the datacentres' watermarks, from journals on this machine and from the verifiers of the others."""
    places = {each: (base / settings.datacentre[each].state, settings.datacentre[each]) for each in datacentres}
    asked = [
        of_datacentre("verifier", each, each, pipeline.at("verifier")[0])
        for each, (state, pipeline) in places.items()
        if not state.is_dir()
    ]
    found = await gathered(tls(), asked, details=True) if asked else []
    heard = {each.process.datacentre: each for each in found}
    return [
        of_state(name, pipeline.join, state, pipeline.spark_slot(name) if pipeline.on_spark else None)
        if state.is_dir()
        else _said(name, pipeline.join, state, heard[name])
        for name, (state, pipeline) in places.items()
    ]


def _said(datacentre: str, join: str, state: Path, heard: Heard) -> DatacentreWatermark:
    where = f"{state} is not on this machine"
    if not heard.up:
        problem = f"{where}, and its verifier does not answer ({heard.problem})"
        return DatacentreWatermark(datacentre, join, state, None, problem=problem)
    said = heard.details.get("watermark", {})
    pairs = pairs_of(decode(str(said.get("line", "")).encode()))
    problem = "" if pairs else "its verifier has no watermark yet"
    last, late = pairs[-1] if pairs else None, int(said.get("late_records", 0))
    return DatacentreWatermark(datacentre, join, state, last, late, problem, *_moved(pairs))


def _moved(pairs: Sequence[Pair]) -> tuple[int, int]:
    """Returns the times at which the last pair's percentile and exact watermarks were first reported."""
    last = pairs[-1] if pairs else None
    if last is None:
        return 0, 0
    return (
        next(pair.at_ns for pair in pairs if pair.percentile_ns == last.percentile_ns),
        next(pair.at_ns for pair in pairs if pair.exact_ns == last.exact_ns),
    )


def of_state(datacentre: str, join: str, state: Path, slot: str | None = None) -> DatacentreWatermark:
    try:
        entries = read_journal(RealDisk(), state)
    except OSError as error:
        return DatacentreWatermark(datacentre, join, state, None, problem=f"{error.filename}: {error.strerror}")
    pairs = pairs_of(entries)
    problem = "" if pairs else f"no {state / JOURNAL}: its verifier keeps it, on the machine with the state"
    last = pairs[-1] if pairs else None
    return DatacentreWatermark(datacentre, join, state, last, late_in(entries), problem, *_moved(pairs), slot)


class VerifierTail:
    """Follows the watermark of a datacentre on another machine by repeatedly asking its verifier, in a thread. The
    verifier reports its newest pair; each pair is valid by itself, so it does not matter if some are missed."""

    def __init__(
        self, settings: Settings, datacentre: str, tls: Tls | None, kinds: Collection[str],
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        """``tell``: called with one line if the verifier does not answer."""
        address = settings.datacentre[datacentre].at("verifier")[0]
        self._verifier = of_datacentre("verifier", datacentre, datacentre, address)
        self._tls, self._tell, self._said = tls, tell, ""
        self._heard, self._lock, self._first = PairsHeard(kinds), threading.Lock(), threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._ask()), name="watermarks", daemon=True).start()

    async def _ask(self) -> None:
        gatherer, last = Gatherer(self._tls, samples=False), b""
        while True:
            heard = await gatherer.ask(self._verifier)
            line = str(heard.details.get("watermark", {}).get("line", "")).encode()
            if heard.problem and heard.problem != self._said:
                self._tell(f"{self._verifier.title} does not answer: {heard.problem}; its watermark does not move")
            self._said = heard.problem
            if line and line != last:
                with self._lock:
                    self._heard.add(pairs_of(decode(line)))
                last = line
            self._first.set()
            await asyncio.sleep(ASK_EVERY_S)

    def moved(self, cursor: Cursor) -> Pair | None:
        """Like ``photon.outputs.watermarks.WatermarkTail.moved``. The first call waits up to FIRST_S for the
        verifier's answer."""
        self._first.wait(FIRST_S)
        with self._lock:
            return self._heard.moved(cursor)


def over_all(found: Sequence[DatacentreWatermark]) -> list[JoinWatermark]:
    return [
        _over(join, [each for each in found if each.join == join]) for join in sorted({each.join for each in found})
    ]


def _over(join: str, found: Sequence[DatacentreWatermark]) -> JoinWatermark:
    pairs = [each.pair for each in found if each.pair is not None]
    silent = [f"{each.datacentre}: {each.problem}" for each in found if each.pair is None]
    exact_ns = _least([pair.exact_ns for pair in pairs], len(found))
    percentile_ns = _least([pair.percentile_ns for pair in pairs], len(found))
    held = [
        f"{each.datacentre}: {why}"
        for each in found
        if each.pair is not None and each.pair.exact_ns == exact_ns
        for why in each.pair.held_by
    ]
    return JoinWatermark(join, exact_ns, percentile_ns, max((p.waiting for p in pairs), default=0), (*silent, *held))


def _least(times: Sequence[int | None], expected: int) -> int | None:
    known = [each for each in times if each is not None]
    return min(known) if known and len(known) == expected else None
