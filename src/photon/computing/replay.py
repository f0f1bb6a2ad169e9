"""Replays a topology: repeats its computations from the beginning of its sources, into separate streams.

The replay NAME of the state STATE has its own state STATE.NAME. Where the topology publishes to DIRECTORY, the replay
publishes to DIRECTORY.NAME, beginning with records of a given time. Two files, with one line of JSON each, tell which
run is valid::

    STATE.NAME/replay.json    {"photon_replay":1,"of":"spend","from_ns":…}
    STATE/placed.json         {"photon_placed":1,"names":["fix1","fix2"]}    put in place, in this order

Writing ``placed.json`` puts a replay in place: after that, only the last name in it runs. The streams that the replay
replaces are marked as retired afterwards, at the latest when it starts next.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from photon.computing.wire import NEVER_NS
from photon.config.disk import Disk
from photon.config.errors import UsageError
from photon.config.versioned_file import read_versioned
from photon.outputs.output_places import EMBEDDED_STATE
from photon.outputs.replayed import retire

REPLAY_NAME, PLACED_NAME = "replay.json", "placed.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


class _Replay(msgspec.Struct, frozen=True, tag_field="photon_replay", tag=1):
    of: str  # the directory of the first state, next to this one
    from_ns: int


class _Placed(msgspec.Struct, frozen=True, tag_field="photon_placed", tag=1):
    names: tuple[str, ...]


@dataclass(frozen=True)
class Replay:
    """Identifies a state's run of a topology; the first one has no name."""

    disk: Disk
    first: Path  # the state of the first run
    name: str = ""
    from_ns: int = NEVER_NS

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The names of all runs that have been in place, the current one last."""
        placed = read_versioned(self.disk, self.first / PLACED_NAME, _Placed, _damaged)
        return ("", *(placed.names if placed is not None else ()))

    @property
    def since_ns(self) -> int:
        """The time of the earliest records that the run publishes. Once in place, it publishes all results of later
        input."""
        return NEVER_NS if self.name in self.order else self.from_ns

    def check(self) -> None:
        """Raises UsageError if another run has replaced this one."""
        if self.name in self.order[:-1]:
            raise UsageError(
                f"{state_of(self.first, self.name)}: was replaced by the replay {self.order[-1]}; its state is "
                f"{state_of(self.first, self.order[-1])}"
            )

    def directory(self, named: Path) -> Path:
        """Returns the directory to which the replay publishes the stream that the topology publishes to ``named``."""
        return state_of(named, self.name)

    def place(self) -> None:
        """Puts the replay in place, durably. Raises OSError."""
        if self.name not in self.order:
            names = (*self.order[1:], self.name)
            self.disk.replace(self.first / PLACED_NAME, msgspec.json.encode(_Placed(names)) + b"\n")

    def retire(self, named: Path) -> None:
        """Once the replay is in place, marks the stream that it replaces, if any, as retired."""
        if self.name not in self.order[1:]:
            return
        before = state_of(named, self.order[self.order.index(self.name) - 1])
        if self.disk.exists(before / EMBEDDED_STATE):
            retire(self.disk, before / EMBEDDED_STATE, self.from_ns, self.directory(named).name)


def state_of(first: Path, name: str) -> Path:
    return first.with_name(f"{first.name}.{name}") if name else first


def replay_of(disk: Disk, state: Path) -> Replay:
    """Returns the run to which a state directory belongs. Raises UsageError."""
    found = read_versioned(disk, state / REPLAY_NAME, _Replay, _damaged)
    if found is None:
        return Replay(disk, state)
    first = state.with_name(found.of)
    return Replay(disk, first, state.name.removeprefix(f"{found.of}."), found.from_ns)


def current(disk: Disk, state: Path) -> Path:
    """Returns the directory of the state that is in place: ``state`` itself, or the replay that replaced it. Raises
    UsageError."""
    replay = replay_of(disk, state)
    return state if replay.name else state_of(state, replay.order[-1])


def begin(disk: Disk, first: Path, name: str, from_ns: int | None) -> Path:
    """Begins a replay, or continues one. Returns its state's directory. ``from_ns``: may be ``None`` if it has
    already begun. Raises UsageError."""
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"--name {name}: write letters, digits, _ and -")
    if not disk.exists(first):
        raise UsageError(f"{first}: has no state of computations, so there is nothing to replay; create it with "
                         "photon compute run")  # fmt: skip
    state = state_of(first, name)
    if disk.exists(state / REPLAY_NAME):
        if (known := replay_of(disk, state).from_ns) != from_ns and from_ns is not None:
            raise UsageError(f"{state}: the replay {name} begins at {known} ns, not at {from_ns}; choose "
                             "another --name")  # fmt: skip
        return state
    if from_ns is None:
        raise UsageError(f"{state}: no such replay; begin one with --from TIME")
    if disk.exists(state):
        raise UsageError(f"{state}: is not a replay; choose another --name")
    disk.make_dir(state)
    disk.replace(state / REPLAY_NAME, msgspec.json.encode(_Replay(first.name, from_ns)) + b"\n")
    return state


def _damaged(path: Path, why: str) -> UsageError:
    return UsageError(f"{path}: unreadable ({why}); restore it")
