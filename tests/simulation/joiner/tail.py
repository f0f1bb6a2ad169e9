"""A reader of a simulated slot: the production one, stopped and resumed anywhere, whatever happens to the slot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.outputs import Cursor, OutputLog, OutputPlace, Reader
from photon.outputs.log.format import DURABLE_NAME, RETIRED_NAME

KINDS = ("joined", "filtered", "unmatched", "rejected")


class _OneSlot(OutputPlace):
    """The simulated machine has one slot's state, and no directory of slots."""

    def states(self, disk: Disk) -> list[Path]:
        publishes = any(disk.exists(self.state / name) for name in (DURABLE_NAME, RETIRED_NAME))
        return [self.state] if publishes else []


class Tail:
    """A consumer's data, with the cursor that it committed along with it."""

    def __init__(self, disk: Disk, output: Path, state: Path, random: Random) -> None:
        """``random``: its own, so that the slot's schedule does not change."""
        self._disk, self._place, self._random = disk, _OneSlot(output, state), random
        self._cursor = Cursor()
        self._reader = self._resumed()
        self.has: dict[OutputLog, bytes] = {}
        self.trouble = ""  # the reader's first complaint; it stops reading then

    def _resumed(self) -> Reader:
        size = self._random.choice((1, 200, 10_000))
        return Reader(self._disk, self._place, KINDS, cursor=self._cursor, block_bytes=size)

    def read(self) -> None:
        """Reads what is published now, or part of it."""
        if self.trouble:
            return
        try:
            for block in self._reader.read():
                self.has[block.place] = self.has.get(block.place, b"") + block.data
                self._cursor = self._cursor.moved(block.place, block.end())
                if self._random.random() < 0.1:
                    self._reader = self._resumed()
                    return
        except PhotonError as error:
            self.trouble = str(error)
        if self._random.random() < 0.2:
            self._reader = self._resumed()

    def check(self, published: Mapping[str, bytes]) -> str:
        """Returns, at rest, what is wrong with its data; empty if nothing is.

        ``published``: for each kind, the data below the published lengths, in the order of the files.
        """
        before = None
        while before != self._cursor and not self.trouble:
            before = self._cursor
            self.read()
        if self.trouble:
            return self.trouble
        has = {place.kind: data for place, data in self.has.items()}
        wrong = [kind for kind in KINDS if has.get(kind, b"") != published.get(kind, b"")]
        return f"a reader has something else than what is published in {', '.join(wrong)}" if wrong else ""
