"""States that are closed at the end of a test, if not before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from photon.dispatcher.state import State


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def kept() -> Iterator[Callable[[Any], Any]]:
    """Has a state closed once."""
    states: list[Any] = []

    def keep(state: Any) -> Any:
        state.close = cache(state.close)
        states.append(state)
        return state

    yield keep
    for each in states:
        each.close()


@pytest.fixture
def reopened(path: Path, kept: Callable[[State], State]) -> Callable[[], State]:
    """Opens the state of ``path`` repeatedly: the previous one is closed."""
    held: list[State] = []

    def opened() -> State:
        for each in held:
            each.close()
        held[:] = [kept(State(path))]
        return held[0]

    return opened


@pytest.fixture
def state(reopened: Callable[[], State]) -> State:
    return reopened()
