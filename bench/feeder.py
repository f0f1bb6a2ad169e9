"""A process that writes live logs at a given rate, and notes when: ``python -m bench.feeder '{"rate": …}'``.

Queries are ``per_click`` times as many as clicks. Every tick lines that are due are written, a write a side,
into files that roll. Lines of one kind are of one width: a tick's lines are one table of bytes in which only
digits change. A generator that took a core would measure itself.

It prints one JSON line when it begins. At the end it writes ``fed.npz``: for each click the moment (monotonic ns)
after the write of its own line, that after the later one of its own and its query's line (``ready_ns``; 0: it names
no query), and whether it came before its query.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

TICK_S = 0.01
# Maximum, with clicks in proportion: a late feeder would otherwise make ever larger tables of due lines.
QUERIES_A_WRITE = 1 << 16
ROLL_S = 10.0  # interval at which a new file per side begins
UNMATCHED, BEFORE = 0.02, 0.05  # shares of clicks that name no query, and that come before theirs
EARLY_S = (1.0, 10.0)  # range of how much earlier the clicks of ``Feed.early`` are written than their query
# Average from query to click; how much earlier a click that comes before its query is written.
MEAN_DELAY_S, BEFORE_S = 0.3, 0.6
DIGITS = 16
QUERY = (
    b'{"query_id":"10.0.1.11:4021:@@@@@@@@@@@@@@@@","time_us":################,"user":"u493857201",'
    b'"terms":"shoes rain coat","country":"de","device":"mobile","ads":[48571920,71938475,10398475],"bid":0.4711,'
    b'"page":"https://search.example/results?session=102938475610293&layout=standard"}\n'
)
CLICK = (
    b'{"click_id":"10.7.2.13:4077:@@@@@@@@@@@@@@@@","query_id":"10.0.1.11:4021:%%%%%%%%%%%%%%%%",'
    b'"time_us":################,"position":3,"cost_micros":471100}\n'
)
NOWHERE = 9_000_000_000_000_000  # ids from here on name no query


@dataclass(frozen=True, slots=True)
class Feed:
    """The parameters of the lines to write."""

    rate: float  # clicks a second
    seconds: float
    primary: str
    foreign: str
    notes: str  # path of ``fed.npz``
    per_click: int = 10
    seed: int = 1
    early: float = 0.0  # share of clicks that come seconds before their query, in place of ``BEFORE``

    @property
    def clicks(self) -> int:
        """Total number of clicks."""
        return int(self.rate * self.seconds)


def digits(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Decimal digits, most significant first: (n, 16) characters."""
    powers = 10 ** np.arange(DIGITS - 1, -1, -1, dtype=np.int64)
    return (numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8)


def table(template: bytes, **fields: NDArray[np.int64]) -> bytes:
    """Lines of one template; ``fields``: numbers for the marks ``at`` (@), ``percent`` (%) and ``hash`` (#)."""
    marks = {"at": b"@", "percent": b"%", "hash": b"#"}
    count = len(next(iter(fields.values())))
    lines = np.tile(np.frombuffer(template, np.uint8), (count, 1))
    for name, numbers in fields.items():
        place = template.index(marks[name] * DIGITS)
        lines[:, place : place + DIGITS] = digits(numbers)
    return lines.tobytes()


@dataclass(frozen=True, slots=True)
class Plan:
    """When each click is written and which query it names; queries are written evenly, one after the other."""

    at_s: NDArray[np.float64]  # moments of the clicks' lines, rising
    query: NDArray[np.int64]  # number of the query; -1: none
    before: NDArray[np.bool_]


def plan(feed: Feed) -> Plan:
    """Makes the plan, drawn from the seed."""
    rng = np.random.default_rng(feed.seed)
    count = feed.clicks
    at = np.arange(count) / feed.rate
    fate = rng.random(count)
    unmatched = fate < UNMATCHED
    delay = rng.exponential(MEAN_DELAY_S, count)
    before = (fate >= UNMATCHED) & (fate < UNMATCHED + (feed.early or BEFORE))
    ahead = rng.uniform(*EARLY_S, count) if feed.early else np.full(count, BEFORE_S)
    asked = np.where(before, at + ahead, at - delay)
    last = count * feed.per_click - 1
    query = np.floor(asked * feed.rate * feed.per_click).astype(np.int64) + rng.integers(0, feed.per_click, count)
    before &= query <= last
    query = np.clip(query, 0, last)
    # The first clicks have no earlier query to name: they name the first ones, which are before them.
    query = np.where(before, query, np.minimum(query, np.floor(at * feed.rate * feed.per_click).astype(np.int64)))
    return Plan(at, np.where(unmatched, -1, query), before)


class _Side:
    """The growing files of one side of the join."""

    def __init__(self, directory: str, name: str) -> None:
        self._directory, self._name = Path(directory), name
        self._file: BinaryIO | None = None
        self._roll = -1

    def write(self, data: bytes, now_s: float) -> None:
        if not data:
            return
        if self._file is None or int(now_s / ROLL_S) != self._roll:
            if self._file is not None:
                self._file.close()
            self._roll = int(now_s / ROLL_S)
            self._file = open(self._directory / f"{self._name}-{self._roll:05d}.log", "ab", buffering=0)  # noqa: SIM115
        self._file.write(data)


def run(feed: Feed) -> None:
    """Writes all lines at their times, or as soon after as possible."""
    todo = plan(feed)
    count, queries = feed.clicks, feed.clicks * feed.per_click
    query_rate = feed.rate * feed.per_click
    wrote_click = np.zeros(count, np.int64)
    wrote_query = np.zeros(queries, np.int64)
    primary, foreign = _Side(feed.primary, "queries"), _Side(feed.foreign, "clicks")
    epoch_us = time.time_ns() // 1000
    print(json.dumps({"began_ns": time.monotonic_ns(), "epoch_us": epoch_us}), flush=True)
    began = time.monotonic()
    asked = clicked = 0
    behind = 0.0
    while asked < queries or clicked < count:
        now = time.monotonic() - began
        upto = min(queries, int(now * query_rate) + 1, asked + QUERIES_A_WRITE)
        due = int(np.searchsorted(todo.at_s, now, side="right"))
        until = min(due, clicked + QUERIES_A_WRITE // feed.per_click)
        each = np.arange(asked, upto)
        times = epoch_us + (each / query_rate * 1e6).astype(np.int64)
        primary.write(table(QUERY, at=epoch_us + each, hash=times), now) if upto > asked else None
        wrote_query[asked:upto] = time.monotonic_ns()
        each = np.arange(clicked, until)
        named = todo.query[clicked:until]
        times = epoch_us + (todo.at_s[clicked:until] * 1e6).astype(np.int64)
        if until > clicked:
            keys = np.where(named < 0, NOWHERE + each, epoch_us + named)
            foreign.write(table(CLICK, at=epoch_us + each, percent=keys, hash=times), now)
        wrote_click[clicked:until] = time.monotonic_ns()
        asked, clicked = upto, until
        spent = time.monotonic() - began - now
        behind = max(behind, spent - TICK_S)
        time.sleep(max(0.0, TICK_S - spent))
    ready = np.where(todo.query < 0, 0, np.maximum(wrote_click, wrote_query[np.maximum(todo.query, 0)]))
    np.savez(
        feed.notes,
        epoch_us=epoch_us,
        wrote_ns=wrote_click,
        ready_ns=ready,
        query=todo.query,
        before=todo.before,
        behind_s=behind,
    )


def main() -> None:
    """Runs the command that the module describes."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    run(Feed(**given))


if __name__ == "__main__":
    main()
