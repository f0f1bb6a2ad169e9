"""``python -m bench.components.kinds [--events N] [--rounds N]``: kinds of join beside the plain one.

Generated JSON Lines, in one process, no disk: headers of foreign records and keys of primary records are read in
blocks as dispatcher and primary reader do, and pairs are joined as the joiner does: what an adapter costs, which is a
part of a join. Kinds take turns; the least CPU time of the rounds counts. A further kind is an entry of KINDS.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from photon.adapters.contract import Adapter, LogFile, Pairs
from photon.adapters.join_adapters import adapter_of_join
from photon.config.loader import convert

TIME = {"field": "ts", "unit": "us"}
BLOCK = 1000
KINDS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "key of two fields": {"key": ["shop", "order"]},
    "normalised key": {"key": {"field": "order", "case": "fold", "trim": True}},
    "number as key": {"key": {"field": "number", "as": "number"}},
    "within": {"within": {"before": "1h", "after": "5m"}},
}
"""Kind -> what its join has of its own; ``key`` stands on both sides."""


def adapter_for(kind: Mapping[str, Any]) -> Adapter:
    """Of a join of this kind over the generated records."""
    side = {"format": "jsonl", "key": kind.get("key", "order"), "time": TIME}
    join = {"primary": side, "foreign": {**side, "id": "id"}}
    more = {name: value for name, value in kind.items() if name != "key"}
    return adapter_of_join(convert({"join": {"x": {**join, **more}}}, "bench").join["x"], "x", Path())


def records(count: int) -> tuple[list[bytes], list[bytes]]:
    """(foreign, primary), each of some 150 and 300 bytes; row by row they are pairs."""
    head = b'"shop":"shop-%d","order":"order-%09d","number":%d,"ts":%d'
    names = [head % (n % 997, n, n, 1_760_000_000_000_000 + n) for n in range(count)]
    foreign = [b'{"id":"click-%09d",%b,"ad":"%b"}' % (n, name, b"y" * 30) for n, name in enumerate(names)]
    return foreign, [b'{%b,"text":"%b"}' % (name, b"x" * 200) for name in names]


def round_of(adapter: Adapter, foreign: list[bytes], primary: list[bytes]) -> tuple[float, float, float]:
    """CPU seconds of foreign headers, primary keys and joins."""
    file, blocks = LogFile("a.log"), range(0, len(foreign), BLOCK)
    spent = [0.0, 0.0, 0.0]
    for at in blocks:
        some, others = foreign[at : at + BLOCK], primary[at : at + BLOCK]
        block = b"".join(record + b"\n" for record in others)
        files = [file] * len(some)
        moments = [time.process_time()]
        headers = adapter.header_columns(some, file)
        moments.append(time.process_time())
        keys = adapter.primary_keys(block, file)
        moments.append(time.process_time())
        made = adapter.join_columns(Pairs(some, files, others, files))
        moments.append(time.process_time())
        assert list(headers.keys) == keys, "or they would not meet"
        assert not headers.others
        assert not made.others
        spent = [before + b - a for before, (a, b) in zip(spent, pairwise(moments), strict=True)]
    return spent[0], spent[1], spent[2]


def measure(events: int, rounds: int) -> dict[str, tuple[float, float, float]]:
    """Kind -> the least CPU microseconds a record of each stage."""
    foreign, primary = records(events)
    adapters = {name: adapter_for(kind) for name, kind in KINDS.items()}
    best: dict[str, tuple[float, float, float]] = {}
    for _ in range(rounds):
        for name, adapter in adapters.items():
            found = round_of(adapter, foreign, primary)
            known = best.get(name, found)
            best[name] = (min(known[0], found[0]), min(known[1], found[1]), min(known[2], found[2]))
    return {name: (a / events * 1e6, b / events * 1e6, c / events * 1e6) for name, (a, b, c) in best.items()}


def main() -> None:
    """Prints a row for each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    found = measure(options.events, options.rounds)
    plain = sum(found["plain"])
    print("| kind | foreign headers, µs | primary keys, µs | pairs, µs | records/s | beside the plain join |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, stages in found.items():
        total = sum(stages)
        figures = " | ".join(f"{each:.2f}" for each in stages)
        print(f"| {name} | {figures} | {1e6 / total:,.0f} | {total - plain:+.2f} µs, {total / plain - 1:+.0%} |")


if __name__ == "__main__":
    main()
