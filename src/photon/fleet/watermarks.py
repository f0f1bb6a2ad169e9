"""The watermarks of a deployment: of each datacentre as it journals them, and over all that are expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from photon.config.disk import RealDisk
from photon.config.errors import PhotonError
from photon.config.settings import Settings
from photon.dispatcher.database import STATE_NAME
from photon.dispatcher.undecided import read_undecided
from photon.outputs.watermarks import JOURNAL, Pair, late_in, pairs_of, read_journal


@dataclass(frozen=True, slots=True)
class DatacentreWatermark:
    datacentre: str
    join: str
    state: Path
    pair: Pair | None
    late_records: int = 0
    problem: str = ""
    """Why there is no pair."""

    def waiting_before(self, time_ns: int) -> int | None:
        """How many events before this time have no verdict in its state now; None: the state does not say."""
        try:
            with read_undecided(self.state / STATE_NAME) as found:
                return None if found is None else found.before(time_ns)
        except PhotonError:
            return None


@dataclass(frozen=True, slots=True)
class JoinWatermark:
    """The least of all datacentres that the deployment file names for a join: one that says nothing holds it back."""

    join: str
    exact_ns: int | None
    percentile_ns: int | None
    waiting: int
    """The most of any datacentre: each of them reads every event."""
    held_by: tuple[str, ...]


def watermarks(settings: Settings, base: Path, datacentres: Sequence[str]) -> list[DatacentreWatermark]:
    """As journaled in the states on this machine."""
    return [_of(settings, base, each) for each in datacentres]


def _of(settings: Settings, base: Path, datacentre: str) -> DatacentreWatermark:
    pipeline = settings.datacentre[datacentre]
    state = base / pipeline.state
    try:
        entries = read_journal(RealDisk(), state)
    except OSError as error:
        return DatacentreWatermark(
            datacentre, pipeline.join, state, None, problem=f"{error.filename}: {error.strerror}"
        )
    pairs = pairs_of(entries)
    problem = "" if pairs else f"no {state / JOURNAL}: its verifier keeps it, where the state is"
    return DatacentreWatermark(
        datacentre, pipeline.join, state, pairs[-1] if pairs else None, late_in(entries), problem
    )


def over_all(found: Sequence[DatacentreWatermark]) -> list[JoinWatermark]:
    """One for each join."""
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
