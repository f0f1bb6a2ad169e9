"""The protocol core: events in, instructions out. Its stories are in ``core.txt``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

import pytest

from photon.batch.columns import U64, split_digests
from photon.config.back_off import BackOff
from photon.idregistry.api import BATCH_BITS, Answer, Kind, token_of
from photon.joiner.core import (
    Append,
    CoreLimits,
    Insert,
    Instruction,
    Redone,
    Release,
    Reply,
    SlotCore,
    Stop,
    SyncOutput,
    Write,
)
from photon.joiner.rows import Rows
from tests.kit.stories import Story, stories
from tests.unit.joiner.helpers import DIGESTER, answers_of, rows_for
from tests.unit.joiner.told import outcomes_of, owners_of

FLOATS = {field.name for field in fields(CoreLimits)} - {"retry"}


class Slot:
    """A ``SlotCore``. Tokens are shown as incarnation.batch; ``a*3`` are the ids a0 to a2, ``UNKNOWN*3`` answers."""

    def __init__(self) -> None:
        self.core = SlotCore(1)
        self.names: dict[bytes, str] = {}

    def slot(self, incarnation: str = "1", retry: str = "0.05,2", **limits: str) -> None:
        """``retry``: seconds, first and most."""
        assert limits.keys() <= FLOATS
        numbers: Any = {name: float(value) for name, value in limits.items()}
        self.core = SlotCore(int(incarnation), CoreLimits(retry=BackOff(*map(float, retry.split(","))), **numbers))

    def token(self) -> str:
        return _token(self.core.take_token())

    def submit(self, *ids: str, deadline: str = "10", unmatched: str = "") -> Iterator[str]:
        rows = self._rows(ids, self.core.take_token())
        rows.kinds[[at for at, name in enumerate(ids) if name == unmatched]] = Kind.UNMATCHED
        return self._told(self.core.submit(rows, float(deadline))[1])

    def asked(self, *ids: str, deadline: str = "10") -> Iterator[str]:
        """Submits, and syncs the log."""
        number, _ = self.core.submit(self._rows(ids, self.core.take_token()), float(deadline))
        return self._told(self.core.redo_synced(number))

    def in_vain(self, *ids: str) -> None:
        """The registry is asked for a batch with these, and does not answer."""
        rows = self._rows(ids, self.core.take_token())
        number, _ = self.core.submit(rows, 10.0)
        self.core.redo_synced(number)
        self.core.answered(number, answers_of([Answer.UNKNOWN] * len(rows)), 0.0)

    def start(self, *kept: str) -> Iterator[str]:
        """``incarnation.batch:id,id`` each, the frames of the log."""
        frames = []
        for number, each in enumerate(kept):
            token, _, ids = each.partition(":")
            frames.append((number, self._rows(ids.split(","), token_of(*map(int, token.split("."))))))
        return self._told(self.core.start(frames))

    def log_synced(self, frame: str) -> Iterator[str]:
        return self._told(self.core.redo_synced(int(frame)))

    def answer(
        self, frame: str, *names: str, at: str = "0", datacentre: str = "dc0", tag: str = "0"
    ) -> Iterator[str]:
        codes = [Answer[each.rstrip("0123456789")] for each in _each(names)]
        answers = answers_of(codes, datacentre=datacentre, tags=[int(tag)] * len(codes))
        return self._told(self.core.answered(int(frame), answers, float(at)))

    def written(self, write: str, size: str) -> str:
        assert self.core.written(int(write), int(size)) == []
        return f"{self.core.unwritten_bytes} bytes unwritten"

    def output_synced(self, write: str) -> Iterator[str]:
        return self._told(self.core.output_synced(int(write)))

    def tick(self, at: str, *hurry: str) -> Iterator[str]:
        return self._told(self.core.tick(float(at), hurry=bool(hurry)))

    def state(self) -> str:
        core = self.core
        shown = [f"{core.open_rows} open"]
        for what, digests in (("outstanding", core.outstanding), ("early", core.early)):
            if digests:
                shown.append(f"{what} {' '.join(sorted(self.names[each] for each in digests))}")
        shown += ["waiting for time"] * core.waits_for_time + [f"empty, {core.open_bytes} bytes"] * core.empty
        return ", ".join(shown)

    def _rows(self, ids: Iterable[str], token: int) -> Rows:
        names = list(_each(ids))
        self.names |= {DIGESTER.digest(name.encode()): name for name in names}
        return rows_for([name.encode() for name in names], token)

    def _told(self, instructions: Iterable[Instruction]) -> Iterator[str]:
        for each in instructions:
            match each:
                case Append(frame, rows):
                    yield f"append {frame}: {self._by_token(rows.digests, rows.tokens)}"
                case Insert(frame, ids):
                    yield f"insert {frame}: {self._by_token(ids.digests, ids.tokens)}"
                case Write(number, chunks):
                    ids = [re.findall(r'"id":"(.*?)"', data.decode()) for _, data in chunks]
                    logs = [f"{kind.name.lower()} {_run(its)}" for (kind, _), its in zip(chunks, ids, strict=True)]
                    yield f"write {number}: {', '.join(logs)}"
                case Reply(frame):
                    verdicts = [outcome.name for outcome in outcomes_of(each)]
                    for row, by in owners_of(each).items():
                        verdicts[row] += f" by {by.datacentre}{', this line' * by.same_line}"
                    yield f"reply {frame}: {_run(verdicts)}"
                case Release(frames):
                    yield f"release {_run(frames)}"
                case Redone(upto):
                    yield f"redone {upto}"
                case SyncOutput():
                    yield "sync output"
                case Stop(reason):
                    yield f"stop: {reason.partition(';')[0]}"

    def _by_token(self, digests: bytes, tokens: U64) -> str:
        names: dict[int, list[str]] = {}
        for digest, token in zip(split_digests(digests), tokens.tolist(), strict=True):
            names.setdefault(token, []).append(self.names[digest])
        return ", ".join(f"{_run(its)} of {_token(token)}" for token, its in names.items())


def _each(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        name, _, count = word.partition("*")
        yield from [f"{name}{n}" for n in range(int(count))] if count else [name]


def _run(names: Iterable[object]) -> str:
    first, *others = map(str, names)
    return " ".join([first, *others]) if len(others) < 9 else f"{first} .. {others[-1]}"


def _token(token: int) -> str:
    return f"{token >> BATCH_BITS}.{token % (1 << BATCH_BITS)}"


@pytest.mark.parametrize("story", stories(__file__, "core.txt"), ids=str)
def test_it_answers_as_its_stories_tell(story: Story, golden: Any) -> None:
    golden(story, story.told_by(Slot()))
