"""Skipping over a pipeline's foreign logs: finds them as the follower does, plans, and commits the new positions.

For a dispatcher whose state was lost, or that is too far behind, while another datacentre still reads the same logs
(protocol rule 11); that one is there is the caller's to know. What is skipped is not counted: the ledger stays
balanced, and says nothing of it. ``begin`` does the same for whoever starts a pipeline, once.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from photon.adapters.contract import Adapter, Framing
from photon.adapters.logs.api import LogPosition
from photon.adapters.logs.discovery import FoundFile, check_directory, compile_patterns, discover
from photon.adapters.logs.forward import COMPRESSED_SUFFIXES
from photon.adapters.logs.framings import header_before, open_anywhere
from photon.adapters.logs.identity import HEAD_BYTES, Head, read_head
from photon.adapters.logs.problems import LogDirectoryError, ProblemReporter
from photon.dispatcher.database import STATE_NAME
from photon.dispatcher.process import Places, state_rule
from photon.dispatcher.replay.coverage import unknown_from
from photon.dispatcher.skip import Log, Skip, plan, proof_at, times_of
from photon.dispatcher.state import Changes, State
from photon.idregistry.api import Digester


@dataclass(frozen=True, slots=True)
class Skips:
    """One row for each log that is there; ``problems``: a line for each file that cannot be looked at."""

    skips: list[Skip] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def moved(self) -> list[Skip]:
        """Those that leave something out."""
        return [skip for skip in self.skips if skip.skipped > 0]


@contextmanager
def locked_state(
    places: Places, join: str, adapter: Adapter, digester: Digester, *, create: bool
) -> Iterator[State | None]:
    """The dispatcher's state, which no dispatcher has meanwhile. None: there is none, and ``create`` is false.

    Raises StateError, also while the dispatcher runs.
    """
    path = places.state / STATE_NAME
    if not create and not path.exists():
        yield None
        return
    state = State(path, rule=state_rule(join, adapter, digester))
    try:
        yield state
    finally:
        state.close()


def plan_skips(
    places: Places, adapter: Adapter, digester: Digester, known: Sequence[LogPosition], to_ns: int | None
) -> Skips:
    """What would be left out of each log; changes nothing. ``to_ns`` None: all that is there.

    Raises LogDirectoryError.
    """
    check_directory(places.foreign)
    planned = Skips()
    told = ProblemReporter(lambda problem: planned.problems.append(str(problem)))
    try:
        found = discover(places.foreign, compile_patterns(places.patterns), told)
    except OSError as error:
        raise LogDirectoryError(
            f"cannot be listed ({error.strerror})", str(places.foreign), "make it readable for this user"
        ) from None
    positions = {position.identity: position for position in known}
    framing = adapter.foreign_framing
    for each, head in _logs(places, found, adapter.foreign_has_header, framing, planned.problems):
        before = positions.get(head.identity)
        offset = before.offset if before else 0
        if offset > each.size and not (each.path.endswith(COMPRESSED_SUFFIXES) or framing.kind == "varint"):
            offset = 0  # truncated since: it would be read again from its start
        position = LogPosition(head.identity, each.path, offset, head.header)
        log = Log(position, head.data_start, each.size)
        try:
            source = open_anywhere(places.foreign / each.path, framing)
            try:
                if before and before.proof not in (b"", proof_at(source, offset)):
                    log = replace(log, position=replace(position, offset=0))  # another log, read from its start
                header = header_before(source, head.fingerprint_at) if framing.kind == "zeek" else head.header
                times = times_of(adapter, digester, replace(log, position=replace(log.position, header=header)))
                planned.skips.append(plan(log, source, times, to_ns, max_record=places.max_record))
            finally:
                source.close()
        except OSError as error:
            planned.problems.append(f"{each.path}: cannot be read ({error.strerror})")
    return planned


def commit_skips(state: State, skips: Skips) -> None:
    """Moves the positions on, in one transaction. Raises StateError."""
    spans = [unknown_from(skip.log.position.identity, skip.to) for skip in skips.moved]
    positions = {skip.log.position.identity: skip.position() for skip in skips.moved}
    without_parts: list[tuple[str, Sequence[object]]]
    without_parts = [("DELETE FROM parts WHERE identity = ?", (identity,)) for identity in positions]
    state.commit(Changes(positions=positions, spans=spans, also=without_parts))


def _logs(
    places: Places, found: Sequence[FoundFile], has_header: bool, framing: Framing, problems: list[str]
) -> Iterator[tuple[FoundFile, Head]]:
    """The file that each log is read from, as the follower chooses it: plain before compressed, then by name.

    Files without a complete record are no logs yet: there is nothing to skip in them.
    """
    claims: dict[str, list[tuple[FoundFile, Head]]] = {}
    for each in found:
        try:
            source = open_anywhere(places.foreign / each.path, framing)
            try:
                head = read_head(
                    each.path, source.read(0, HEAD_BYTES), has_header=has_header, final=False, framing=framing
                )
            finally:
                source.close()
        except OSError as error:
            problems.append(f"{each.path}: cannot be read ({error.strerror})")
            continue
        if head is not None:
            claims.setdefault(head.identity, []).append((each, head))
    for files in claims.values():
        yield min(files, key=lambda claim: (claim[0].path.endswith(COMPRESSED_SUFFIXES), claim[0].path))


class Place(enum.Enum):
    """Of a log that is there at the start."""

    BEGINNING = "beginning"
    END = "end"


@dataclass(frozen=True, slots=True)
class Beginning:
    """``read_from``: a place, or the first record of that event time (ns) or later. It counts only where nothing is
    known of any log: logs that come later are read from their start, whenever that is.

    With ``ignore_checkpoints`` nothing is known: what was read before is read again, and the registry recognises what
    has a verdict; ledger and retry store are kept.
    """

    read_from: Place | int = Place.BEGINNING
    ignore_checkpoints: bool = False


def begin(places: Places, join: str, adapter: Adapter, digester: Digester, beginning: Beginning) -> Skips | None:
    """Before the dispatcher opens its state. None: it goes on as its state says.

    A crash within it leaves all logs to be read from their start. Raises StateError, LogDirectoryError.
    """
    fresh = not (places.state / STATE_NAME).exists()
    if not beginning.ignore_checkpoints and (not fresh or beginning.read_from is Place.BEGINNING):
        return None
    with locked_state(places, join, adapter, digester, create=True) as state:
        assert state is not None
        if not fresh:
            _forget(state)
        if beginning.read_from is Place.BEGINNING:
            return Skips()
        to_ns = None if isinstance(beginning.read_from, Place) else beginning.read_from
        skips = plan_skips(places, adapter, digester, [], to_ns)
        commit_skips(state, skips)
        return skips


def _forget(state: State) -> None:
    back = {position.identity: replace(position, offset=0, proof=b"") for position in state.positions()}
    state.commit(Changes(positions=back, also=[("DELETE FROM parts", ())]))
