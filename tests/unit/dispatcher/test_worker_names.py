"""Names of workers: free ones are taken by their locks, and live workers publish their addresses."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path

import pytest

from photon.dispatcher.database import worker_lock
from photon.dispatcher.errors import StateError
from photon.dispatcher.shared_state import SharedState
from photon.dispatcher.worker_names import AUTO_MAX, Living, living_workers, note_address, under_free_name


def opening(path: Path, name: str) -> AbstractContextManager[SharedState]:
    return closing(SharedState(path, name, now_ns=1))


def test_the_first_free_name_is_taken_and_those_of_the_file_never(tmp_path: Path) -> None:
    path = tmp_path / "dispatcher.db"
    with ExitStack() as stack:
        names = [
            stack.enter_context(under_free_name(path, ["auto2"], lambda name: opening(path, name)))[0]
            for _ in range(3)
        ]
        assert names == ["auto1", "auto3", "auto4"]
    with under_free_name(path, [], lambda name: opening(path, name)) as (name, state):
        assert (name, state.worker) == ("auto1", "auto1")


def test_a_name_that_another_one_just_took_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "dispatcher.db"
    with ExitStack() as stack:

        def open_as(name: str) -> AbstractContextManager[SharedState]:
            if name == "auto1":
                stack.enter_context(opening(path, name))  # between the look and the lock
            return opening(path, name)

        assert stack.enter_context(under_free_name(path, [], open_as))[0] == "auto2"


def test_when_all_names_are_in_use_it_says_so(tmp_path: Path) -> None:
    names = [f"auto{number}" for number in range(1, AUTO_MAX + 1)]
    with (
        pytest.raises(
            StateError, match="has 64 workers that were started as photon serve dispatcher auto; stop some"
        ),
        under_free_name(tmp_path / "dispatcher.db", names, lambda name: opening(tmp_path / "x", name)),
    ):
        pass


def test_those_that_live_say_where_they_are_reached(tmp_path: Path) -> None:
    path = tmp_path / "dispatcher.db"
    assert living_workers(path) == []
    with opening(path, "w1"), opening(path, "w2"), opening(path, "w3"):
        note_address(path, "w1", "a-long-name-of-a-host:7201")
        note_address(path, "w1", "a:7201")
        note_address(path, "w2", "")
        assert living_workers(path) == [Living("w1", "a:7201")]
        worker_lock(path, "w2").write_bytes(b"{half a no")
        assert living_workers(path) == [Living("w1", "a:7201")]
    assert living_workers(path) == []  # the note is still there, and nobody holds its lock
