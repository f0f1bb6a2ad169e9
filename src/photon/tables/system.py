"""The tables' own data: the safe point and the observed columns, kept in one register of the system's table.

All clients use published data after a grace period, because they reread copies that are older than half of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from photon.config.versioned_file import decoded
from photon.tables.api import STATE, SYSTEM, Mutation, StoreFailed, TablesError, TooOld
from photon.tables.surroundings import Patience, Surroundings

OBSERVERS_MAX = 1_000
HELD_MAX = 1_000
HOLD_S_MAX = 7 * 86_400.0


class State(msgspec.Struct, frozen=True, tag_field="version", tag=1):
    """The register's content, as JSON."""

    safe_point: int = 0  # no transaction that began earlier may read
    moved_ms: int = 0  # when it was last moved, by the mover's wall clock
    # Start timestamps of snapshots that hold it back -> end of the hold, wall clock in milliseconds.
    held: dict[str, int] = {}
    observed: dict[str, list[str]] = {}  # ``TABLE/COLUMN`` -> names of its observers
    seeded: list[str] = []  # ``TABLE/COLUMN@OBSERVER`` of observers whose existing rows were notified


def decode(meta: bytes | None) -> State:
    """Decodes the register. Raises StoreFailed."""
    if meta is None:
        return State()
    try:
        return decoded(meta, State)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreFailed(f"{SYSTEM}: the tables' own data is unreadable: {error}") from None


class _Seen(NamedTuple):
    """One reading of the register. It is only replaced as a whole, because threads share it."""

    at_s: float
    meta: bytes | None
    state: State
    observed: set[tuple[str, str]]


class SystemView:
    """This client's copy of the register."""

    def __init__(self, around: Surroundings, own: Callable[[], set[tuple[str, str]]] = set) -> None:
        """``own``: columns that this program observes, published or not."""
        self._around = around
        self._half_grace_s = around.limits.grace_s / 2
        self._seen = _Seen(float("-inf"), None, State(), set())
        self._own = own

    @property
    def safe_point(self) -> int:
        return self._seen.state.safe_point

    def look(self) -> State:
        began = self._around.clock.monotonic()
        (held,) = self._around.read_cells([STATE])
        return self._see(began, held.meta)

    def _see(self, at_s: float, meta: bytes | None) -> State:
        state = decode(meta)
        self._seen = _Seen(at_s, meta, state, {_split(name) for name in state.observed})
        return state

    def check(self, start: int) -> None:
        """Raises TooOld if a transaction that began at ``start`` may have missed versions. Call it after each
        read."""
        self._fresh()
        if start < self._seen.state.safe_point:
            raise TooOld(f"a transaction that began at {start} is older than the safe point {self.safe_point}")

    def observed(self) -> set[tuple[str, str]]:
        """Returns (table, column) of all observed columns, at most half a grace period old."""
        self._fresh()
        return self._all_observed()

    def observed_in(self, meta: bytes | None) -> set[tuple[str, str]]:
        """Like ``observed``, but takes the register's current content."""
        if meta != self._seen.meta:
            self._see(self._around.clock.monotonic(), meta)
        return self._all_observed()

    def _all_observed(self) -> set[tuple[str, str]]:
        own = self._own()
        return self._seen.observed | own if own else self._seen.observed

    def observers(self, table: str, column: str) -> list[str]:
        """Returns the names of a column's published observers, at most half a grace period old."""
        self._fresh()
        return self._seen.state.observed.get(f"{table}/{column}", [])

    def hold(self, start: int, seconds: float) -> None:
        """Keeps the safe point from passing ``start`` for ``seconds``, or until ``let_go``. Raises TooOld if the safe
        point has passed ``start``, TablesError, StoreFailed."""
        if not 0 < seconds <= HOLD_S_MAX:
            raise TablesError(f"a snapshot cannot be held for {seconds:g} s; the limit is {HOLD_S_MAX:,.0f}")

        def held(state: State) -> State:
            now_ms = self._around.wall_ms()
            known = {each: until for each, until in state.held.items() if until > now_ms}
            if len(known) >= HELD_MAX:
                raise TablesError(f"{SYSTEM}: {HELD_MAX} snapshots are already held")
            known[str(start)] = known.get(str(start)) or now_ms + int(seconds * 1000)
            return msgspec.structs.replace(state, held=known)

        if self.change(held).safe_point > start:
            self.let_go(start)
            raise TooOld(f"a snapshot of {start} is older than the safe point")

    def let_go(self, start: int) -> None:
        """Ends the hold on ``start``. Raises StoreFailed."""
        self.change(
            lambda state: msgspec.structs.replace(
                state, held={each: until for each, until in state.held.items() if each != str(start)}
            )
        )

    def _fresh(self) -> None:
        if self._around.clock.monotonic() - self._seen.at_s > self._half_grace_s:
            self.look()

    def change(self, change: Callable[[State], State]) -> State:
        """Publishes ``change(state)``, and returns it. ``change`` may be called several times."""
        patience = Patience(self._around)
        while True:
            (held,) = self._around.read_cells([STATE])
            before = decode(held.meta)
            after = change(before)
            if after == before:
                return after
            mutation = Mutation(STATE, held.meta, msgspec.json.encode(after))
            if self._around.store.mutate([mutation])[0]:
                self.look()
                return after
            if not patience.wait():
                raise StoreFailed(f"{SYSTEM}: cannot be changed: others keep changing it, or the store is silent")


def _split(name: str) -> tuple[str, str]:
    table, _, column = name.partition("/")
    return table, column


def with_observer(state: State, table: str, column: str, name: str) -> State:
    key = f"{table}/{column}"
    names: list[str] = state.observed.get(key, [])
    if name in names:
        return state
    if sum(map(len, state.observed.values())) >= OBSERVERS_MAX:
        raise TablesError(f"{SYSTEM}: already has {OBSERVERS_MAX} observers, the maximum")
    observed: dict[str, Any] = {**state.observed, key: sorted([*names, name])}
    return msgspec.structs.replace(state, observed=observed)


def without_observer(state: State, name: str) -> State:
    """Removes an observer, so that notifications no longer wait for it."""
    left = {key: [each for each in names if each != name] for key, names in state.observed.items()}
    seeded = [each for each in state.seeded if each.rpartition("@")[2] != name]
    return msgspec.structs.replace(
        state, observed={key: names for key, names in left.items() if names}, seeded=seeded
    )
