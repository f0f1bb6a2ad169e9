"""Start, end and leftovers of a join that runs next to the program."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any, Self

import pytest

import photon
import photon.library
from photon import JoinStopped, Pairs, UsageError
from photon.library import Join, JoinEnded, Output
from photon.local_join.words import BY_COMMAND
from photon.outputs import OutputPlace

EXAMPLE = '# correct it\n[join.join.foreign]\nkey = "a"\n\ntime = { field = "at", unit = "s" }'


def ends(tmp_path: Path, said: str, code: int) -> Join:
    """A join whose process says so on stderr and ends."""
    join = Join(tmp_path / "p", tmp_path / "f", tmp_path / "out")
    join._command = [sys.executable, "-c", f"import sys; sys.stderr.write({said!r}); print('{{}}'); sys.exit({code})"]
    return join.start()


def test_the_error_is_its_own_line_and_the_example_below_it_goes_along(tmp_path: Path) -> None:
    said = f"photon: looked at 3 logs\nphoton: the key may be a or b; write it\n\n{EXAMPLE}\n\n"
    with pytest.raises(UsageError) as wrong:
        ends(tmp_path, said, 2).wait()
    assert str(wrong.value) == "the key may be a or b; write it"
    assert wrong.value.example == EXAMPLE
    with pytest.raises(UsageError) as wrong:
        ends(tmp_path, f"{said}{BY_COMMAND}\nphoton join --key a\n", 2).wait()
    assert wrong.value.example == EXAMPLE, "a shell's command is no configuration"
    shown = "".join(traceback.format_exception(wrong.value))
    assert EXAMPLE in shown
    with pytest.raises(JoinStopped) as stopped:
        ends(tmp_path, said, 1).wait()
    assert str(stopped.value).endswith("the join ended with exit code 1: the key may be a or b; write it")
    assert stopped.value.example == EXAMPLE


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("photon: read\nphoton: no room\n", "no room"),
        ("photon: read\nTraceback (most recent call last):\n  x\nMemoryError\n", "MemoryError"),
        ("Segmentation fault\n\n", "Segmentation fault"),
        ("", "no message"),
    ],
)
def test_without_an_example(tmp_path: Path, said: str, error: str) -> None:
    with pytest.raises(JoinStopped, match=rf": {error}$") as stopped:
        ends(tmp_path, said, 1).wait()
    assert stopped.value.example == ""
    assert not hasattr(stopped.value, "__notes__")


def test_what_should_be_looked_at_is_its_last_line(tmp_path: Path) -> None:
    join = ends(tmp_path, "photon: found\nphoton: 3 records rejected\n", 3)
    assert join.wait() == JoinEnded({}, "3 records rejected")
    assert join.said() == ("found", "3 records rejected")


class LeftEarly(Join):
    """It counts its work in a file of its output, like a real one."""

    def start(self) -> Self:
        self.directory.mkdir()
        (self.directory / "counts").write_text("7")
        return self

    def running(self) -> bool:
        return False

    def kill(self) -> None:
        """There is no process."""

    def ledger(self) -> dict[str, int]:
        counts = self.directory / "counts"
        return {"joined": int(counts.read_text()) if counts.exists() else 0}

    def output(self) -> Output:
        return Output(OutputPlace(self.directory, self.directory / ".photon"))


def test_the_ledger_outlives_a_temporary_output(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "join.toml").write_text("# said")
    running = LeftEarly(tmp_path, tmp_path, own / "output", config=own / "join.toml")
    with Pairs(running, own) as pairs:
        assert pairs.ledger == {"joined": 7}
    assert not own.exists()
    assert pairs.ledger == {"joined": 7}
    assert pairs.config == "# said"
    pairs.close()
    assert pairs.ledger == {"joined": 7}


@pytest.mark.parametrize("side", ["primary", "foreign"])
@pytest.mark.parametrize("told", [{}, {"key": "k"}])
def test_standard_input_is_refused(tmp_path: Path, side: str, told: dict[str, Any]) -> None:
    logs: dict[str, Any] = {"primary": tmp_path, "foreign": tmp_path, side: "-"}
    with pytest.raises(UsageError, match=r"^-: only the command photon join reads standard input; name a directory"):
        photon.join(**logs, **told)
    with pytest.raises(UsageError, match="only the command photon join reads"):
        Join(**logs, output=tmp_path / "out")


def test_wrong_arguments_are_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such kind of record: matched; there are: joined"):
        next(Output(OutputPlace(tmp_path, tmp_path)).batches(kinds=["matched"]))


def test_all_that_reading_raises_can_be_caught_by_name() -> None:
    for name in ("CursorLost", "OutputMissing", "PublishedDamaged", "LineUnreadable"):
        assert name in photon.library.__all__
        assert issubclass(getattr(photon.library, name), photon.PhotonError)
