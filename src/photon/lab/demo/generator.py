"""A seeded stream of queries and clicks with realistic disorder, and the truth about it.

Pure: the same seed gives the same bytes. Each line comes with the moment it arrives in its log, so that the demo
can write it live and the benchmark at once.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

EPOCH_US = 1_760_000_000_000_000
_SERVERS = [f"10.{a}.{b}.{c}" for a in (0, 7) for b in (1, 2) for c in (11, 12, 13, 14)]
_PIDS = (4021, 4022, 4077, 4131)
_WORDS = ("shoes", "boots", "rain", "coat", "tent", "lamp", "desk", "chair", "piano", "violin", "drum", "novel")
_MALFORMED = (b'{"click_id":"10.0.1.11:40', b"\x00\x00\x00\x00", b'{"click_id":17}', b"not json at all \xff\xfe")


@dataclass(frozen=True, slots=True)
class Disorder:
    """Shares of irregular clicks, each from 0 to 1, and their delays in seconds."""

    unmatched: float = 0.02
    duplicated: float = 0.01
    before_query: float = 0.05  # share of clicks before their query
    late: float = 0.01
    malformed: float = 0.002
    click_delay: float = 0.3  # mean time from query to click
    query_delay: float = 0.6  # delay of the query's line after a click that arrives before it
    late_by: float = 3.0


@dataclass(slots=True)
class Truth:
    """The expected results. Ids are strings, as in the records."""

    joined: dict[str, str] = field(default_factory=dict)  # click id -> query id
    unmatched: set[str] = field(default_factory=set)
    malformed: int = 0
    duplicates: int = 0
    clicks: dict[str, bytes] = field(default_factory=dict)  # click id -> its record without line end

    @property
    def lines(self) -> int:
        """Number of foreign records written."""
        return len(self.joined) + len(self.unmatched) + self.malformed + self.duplicates


@dataclass(frozen=True, slots=True)
class Line:
    at_us: int  # time of arrival, microseconds from the stream's start
    primary: bool
    data: bytes  # with its newline


class Generator:
    """Generates ``clicks`` foreign events in ``seconds``, and ``queries_per_click`` times as many primary events."""

    def __init__(
        self,
        seed: int,
        *,
        clicks: int,
        seconds: float,
        queries_per_click: int = 10,
        disorder: Disorder | None = None,
        epoch_us: int = EPOCH_US,
        keep_truth: bool = True,
        pace: Callable[[float], float] = lambda at_s: 1.0,
    ) -> None:
        """``pace``: maps seconds since the start to a positive multiple of the mean rate. If its mean is not 1, the
        stream ends earlier or later."""
        self._random = random.Random(seed)
        self._clicks = clicks
        self._gap_us = seconds * 1e6 / max(1, clicks * queries_per_click)
        self._per_click = queries_per_click
        self._disorder = disorder or Disorder()
        self._epoch_us = epoch_us
        self._last_us: dict[str, int] = {}
        self._keep_truth = keep_truth
        self._pace = pace
        self.truth = Truth()

    def lines(self) -> Iterator[Line]:
        """All lines, nearly in order of arrival: sort by ``at_us`` for the exact order."""
        for _, lines in self.rounds():
            yield from lines

    def rounds(self) -> Iterator[tuple[int, list[Line]]]:
        """Yields rounds of one click and the queries around it: (start of the round, its lines). No line of a later
        round arrives before that start. ``truth`` covers the rounds yielded so far."""
        rnd = self._random
        moment = 0.0
        for _ in range(self._clicks):
            begins = int(moment)
            lines: list[Line] = []
            clicked = rnd.randrange(self._per_click)
            for position in range(self._per_click):
                moment += self._gap_us / self._pace(moment / 1e6)
                at = int(moment)
                query_id = self._event_id(at)
                query = Line(at, True, self._query(query_id, self._epoch_us + at))
                if position == clicked:
                    lines.extend(self._clicked(query_id, query))
                else:
                    lines.append(query)
            yield begins, lines

    def _event_id(self, at: int) -> str:
        """Makes ids ServerIP:ProcessID:TimestampMicros, strictly increasing per process (paper, section 3.1)."""
        rnd = self._random
        process = f"{rnd.choice(_SERVERS)}:{rnd.choice(_PIDS)}"
        time_us = max(self._epoch_us + at, self._last_us.get(process, 0) + 1)
        self._last_us[process] = time_us
        return f"{process}:{time_us}"

    def _query(self, query_id: str, time_us: int) -> bytes:
        r, w = self._random.random, _WORDS
        n = len(w)
        return (
            f'{{"query_id":"{query_id}","time_us":{time_us},"user":"u{int(r() * 1e9):09d}",'
            f'"terms":"{w[int(r() * n)]} {w[int(r() * n)]} {w[int(r() * n)]}","country":"de","device":"mobile",'
            f'"ads":[{int(r() * 1e8)},{int(r() * 1e8)},{int(r() * 1e8)}],"bid":{r():.4f},'
            f'"page":"https://search.example/results?session={int(r() * 1e15):015d}&layout=standard"}}\n'
        ).encode()

    def _clicked(self, query_id: str, query: Line) -> Iterator[Line]:
        """A query and its click, with random disorder between them."""
        rnd, disorder, truth = self._random, self._disorder, self.truth
        delay = int(rnd.expovariate(1.0 / disorder.click_delay) * 1e6) + 1
        clicked_at = query.at_us + delay
        click_id = self._event_id(clicked_at)
        record = (
            f'{{"click_id":"{click_id}","query_id":"{query_id}","time_us":{self._epoch_us + clicked_at},'
            f'"position":{rnd.randrange(1, 9)},"cost_micros":{rnd.randrange(10_000, 2_000_000)}}}'
        ).encode()
        fate = rnd.random()
        if fate < disorder.unmatched:
            truth.unmatched.add(click_id)
        else:
            truth.joined[click_id] = query_id
            fate -= disorder.unmatched
            late_query = fate < disorder.before_query
            query_at = clicked_at + int(disorder.query_delay * 1e6) if late_query else query.at_us
            yield Line(query_at, True, query.data)
        if self._keep_truth:
            truth.clicks[click_id] = record
        late = int(rnd.random() < disorder.late) * int(disorder.late_by * 1e6)
        line = Line(clicked_at + late, False, record + b"\n")
        yield line
        if rnd.random() < disorder.duplicated:
            truth.duplicates += 1
            yield Line(line.at_us + rnd.randrange(1, 2_000_000), False, line.data)
        if rnd.random() < disorder.malformed:
            truth.malformed += 1
            yield Line(line.at_us, False, rnd.choice(_MALFORMED) + b"\n")


class Arriving:
    """The lines of a generator's rounds, in the order of their arrival."""

    def __init__(self, rounds: Iterator[tuple[int, list[Line]]]) -> None:
        self._rounds = rounds
        self._next = next(rounds, None)
        self._waiting: list[tuple[int, int, Line]] = []
        self._numbers = itertools.count()
        self.taken = 0  # rounds that have begun: each will be written completely

    @property
    def done(self) -> bool:
        return self._next is None and not self._waiting

    def due(self, now_us: int) -> list[Line]:
        """Returns lines that arrive up to ``now_us`` after the stream's start."""
        while self._next is not None and self._next[0] <= now_us:
            for line in self._next[1]:
                heapq.heappush(self._waiting, (line.at_us, next(self._numbers), line))
            self.taken += 1
            self._next = next(self._rounds, None)
        found = []
        while self._waiting and self._waiting[0][0] <= now_us:
            found.append(heapq.heappop(self._waiting)[2])
        return found

    def rest(self) -> list[Line]:
        """Returns the lines of begun rounds that have not arrived yet; nothing is due afterwards."""
        found = [line for _, _, line in sorted(self._waiting)]
        self._waiting.clear()
        return found
