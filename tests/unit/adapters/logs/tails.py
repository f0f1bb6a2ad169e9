"""A follower against real files, with its lines and reports."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from photon.adapters.logs.api import Block, LogPosition
from photon.adapters.logs.follower import Follower, Problem, ProblemKind


class Tail:
    def __init__(
        self, directory: Path, positions: Iterable[LogPosition] = (), *, step: int = 1 << 20, **options: object
    ) -> None:
        self.problems: list[Problem] = []
        arguments: dict[str, object] = {"has_header": False, **options}
        self.follower = Follower(directory, positions=positions, report=self.problems.append, **arguments)  # type: ignore[arg-type]
        self.blocks: list[Block] = []
        self.step = step

    def new(self, *, final: bool = False) -> list[Block]:
        """Scans, and reads everything."""
        self.follower.scan()
        new: list[Block] = []
        while blocks := self.follower.poll(self.step, final=final):
            new += blocks
        assert self.follower.caught_up()
        if final:
            while blocks := self.follower.poll(self.step, final=True):
                new += blocks
        self.blocks += new
        return new

    def read(self, *, final: bool = False) -> list[bytes]:
        """The new lines."""
        return [line for block in self.new(final=final) for line in block.data.split(b"\n")[:-1]]

    def kinds(self) -> list[ProblemKind]:
        return [p.kind for p in self.problems]

    def close(self) -> None:
        self.follower.close()


def append(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as f:
        f.write(data)


def begun(directory: Path, data: bytes = b"1\n2\n") -> tuple[Path, Tail]:
    """A log, and its readers so far."""
    append(directory / "a.log", data)
    tail = Tail(directory)
    tail.read()
    return directory / "a.log", tail
