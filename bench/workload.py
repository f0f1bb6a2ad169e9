"""Generated sets for all systems: the same bytes for the same seed and size, kept in a cache from run to run.

A set is ``queries/`` and ``clicks/`` of JSON Lines in rolled files, and ``truth.tsv``: for each click that must come
out its id and a digest of the pair. Lines are written as they arrive, from a heap that holds what is still on its
way, so that a set may be larger than the memory.
"""

from __future__ import annotations

import hashlib
import heapq
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from photon.lab.demo.generator import Disorder, Generator, Line

VERSION = 1  # version of the output for a seed: increased when the bytes change
SEED = 20
FILES = 20
CLICKS_A_SECOND = 10  # clicks per second of event time: 100 k clicks span three hours
# Ten minutes from query to click on average, hours at most.
DISORDER = Disorder(unmatched=0.02, duplicated=0.01, before_query=0.05, malformed=0.0, click_delay=600.0)
# The join of a set, as given to photon join.
CONFIG = """\
[join.clicks.primary]
format = "jsonl"
key = "query_id"

[join.clicks.foreign]
format = "jsonl"
key = "query_id"
id = "click_id"
time = { field = "time_us", unit = "us" }
"""


def cache_root() -> Path:
    """Directory of sets, environments and results: ``PHOTON_BENCH_CACHE`` or ``~/.cache/photon/bench``."""
    named = os.environ.get("PHOTON_BENCH_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "photon" / "bench"


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a set."""

    clicks: int
    queries_per_click: int = 10
    files: int = FILES
    seed: int = SEED

    @property
    def queries(self) -> int:
        """Number of queries generated; those of unmatched clicks are not written."""
        return self.clicks * self.queries_per_click

    def name(self) -> str:
        """Name of the set's directory."""
        return f"v{VERSION}-{self.clicks}x{self.queries_per_click}-files{self.files}-seed{self.seed}"

    def words(self) -> str:
        """The size as tables show it: ``1 M + 100 k``."""
        return f"{words(self.queries)} + {words(self.clicks)}"


def words(count: int) -> str:
    """Formats a count: 1 M, 100 k, 1.5 M."""
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if count >= unit:
            return f"{count / unit:g} {name}"
    return str(count)


@dataclass(frozen=True, slots=True)
class Set:
    """A generated set on disk."""

    size: Size
    queries: Path
    clicks: Path
    truth: Path
    bytes: int


def digest(click: Any, query: Any) -> str:
    """Digest of a parsed pair, which ignores the order of members and the form of numbers."""
    text = orjson.dumps([click, query], option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def generated(size: Size) -> Set:
    """Returns the set of this size; generates it if the cache lacks it."""
    directory = cache_root() / "sets" / size.name()
    if not directory.is_dir():
        making = directory.with_name(f"{directory.name}.{os.getpid()}.tmp")
        shutil.rmtree(making, ignore_errors=True)
        _make(size, making)
        making.rename(directory)
    logs = [*(directory / "queries").iterdir(), *(directory / "clicks").iterdir()]
    total = sum(log.stat().st_size for log in logs)
    return Set(size, directory / "queries", directory / "clicks", directory / "truth.tsv", total)


def arriving(rounds: Iterable[tuple[int, list[Line]]]) -> Iterator[Line]:
    """Yields lines in order of arrival; lines of the same moment in the order of their generation."""
    waiting: list[tuple[int, int, Line]] = []
    number = 0
    for begins, lines in rounds:
        while waiting and waiting[0][0] < begins:
            yield heapq.heappop(waiting)[2]
        for line in lines:
            heapq.heappush(waiting, (line.at_us, number, line))
            number += 1
    while waiting:
        yield heapq.heappop(waiting)[2]


class _Rolled:
    """The files of one side: begins a new one after a number of lines; the last takes the remaining lines."""

    def __init__(self, directory: Path, name: str, files: int, lines: int) -> None:
        directory.mkdir(parents=True)
        self._directory, self._name, self._most, self._each = directory, name, files, max(1, -(-lines // files))
        self._lines = self._files = 0
        self._file: BinaryIO | None = None

    def write(self, data: bytes) -> None:
        if self._file is None or (self._lines == self._each and self._files < self._most):
            self.close()
            self._file = open(self._directory / f"{self._name}-{self._files:04d}.log", "wb")  # noqa: SIM115
            self._lines, self._files = 0, self._files + 1
        self._file.write(data)
        self._lines += 1

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _make(size: Size, directory: Path) -> None:
    seconds = size.clicks / CLICKS_A_SECOND
    generator = Generator(
        size.seed,
        clicks=size.clicks,
        seconds=seconds,
        queries_per_click=size.queries_per_click,
        disorder=DISORDER,
        keep_truth=True,
    )
    truth = generator.truth
    queries = _Rolled(directory / "queries", "queries", size.files, size.queries)
    clicks = _Rolled(directory / "clicks", "clicks", size.files, size.clicks)
    with open(directory / "truth.tsv", "w") as pairs:

        def noting() -> Iterator[tuple[int, list[Line]]]:
            for begins, lines in generator.rounds():
                for click_id, query_id in truth.joined.items():
                    mark = f'{{"query_id":"{query_id}"'.encode()
                    query = next(line.data for line in lines if line.primary and line.data.startswith(mark))
                    pair = digest(orjson.loads(truth.clicks[click_id]), orjson.loads(query))
                    pairs.write(f"{click_id}\t{pair}\n")
                truth.joined.clear()  # a round's truth at a time: ten million would not fit
                truth.unmatched.clear()
                truth.clicks.clear()
                yield begins, lines

        for line in arriving(noting()):
            (queries if line.primary else clicks).write(line.data)
    queries.close()
    clicks.close()
