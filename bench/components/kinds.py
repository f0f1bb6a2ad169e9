"""``python -m bench.components.kinds [--events N] [--rounds N] [--whole]``: kinds of join beside the plain one.

Generated JSON Lines, in one process, no disk: headers of foreign records and keys of primary records are read in
blocks as dispatcher and primary reader do, and pairs are joined as the joiner does: what an adapter costs, which is a
part of a join. ``--whole``: all of ``photon join --once`` over the same records, start-up included. Kinds take turns;
the least CPU time of the rounds counts. A further kind is an entry of KINDS.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.components import join
from bench.generated_logs import Written
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
SETS: Mapping[str, Mapping[str, Any]] = {
    f"match {which}": {"match": which, "within": {"before": "1h", "after": "0s"}, "unmatched_after": "1s"}
    for which in ("all", "latest")
}
"""Kinds whose cost is not the adapter's: measured as whole joins only."""


def join_of(kind: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a join of this kind over the generated records."""
    side = {"format": "jsonl", "key": kind.get("key", "order"), "time": TIME}
    more = {name: value for name, value in kind.items() if name != "key"}
    return {"primary": side, "foreign": {**side, "id": "id"}, **more}


def adapter_for(kind: Mapping[str, Any]) -> Adapter:
    """Of such a join."""
    return adapter_of_join(convert({"join": {"x": join_of(kind)}}, "bench").join["x"], "x", Path())


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


def toml(value: object) -> str:
    """A value as TOML writes it in one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {toml(each)}" for name, each in value.items()) + "}"
    return "[" + ", ".join(map(toml, value)) + "]" if isinstance(value, list) else json.dumps(value)


def measure_whole(events: int, rounds: int, base: Path) -> dict[str, tuple[float, float]]:
    """Kind -> (wall seconds, CPU seconds) of its best run: every event is joined, or there is no figure."""
    foreign, primary = records(events)
    written = Written(base / "primary", base / "foreign", 0, 0, events, events)
    for directory, lines in ((written.primary, primary), (written.foreign, foreign)):
        directory.mkdir()
        (directory / "a.log").write_bytes(b"".join(line + b"\n" for line in lines))
    best: dict[str, tuple[float, float]] = {}
    cpu_before = 0.0
    for number in range(rounds):
        for at, (name, kind) in enumerate({**KINDS, **SETS}.items()):
            config = base / f"{at}.toml"
            config.write_text("[join]\nx = " + toml(join_of(kind)) + "\n")
            run = join.measure(written, config, base / f"out-{at}-{number}")
            assert run.ledger["joined"] == events, run.ledger
            cpu, cpu_before = run.cpu_s - cpu_before, run.cpu_s
            known = best.get(name, (run.wall_s, cpu))
            best[name] = (min(known[0], run.wall_s), min(known[1], cpu))
    return best


def _print_whole(events: int, found: Mapping[str, tuple[float, float]]) -> None:
    plain = found["plain"][1]
    print("| kind | joined/s | CPU, µs an event | beside the plain join |")
    print("| --- | --- | --- | --- |")
    for name, (wall_s, cpu_s) in found.items():
        print(f"| {name} | {events / wall_s:,.0f} | {cpu_s / events * 1e6:.1f} | {cpu_s / plain - 1:+.0%} |")


def main() -> None:
    """Prints a row for each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    if options.whole:
        with tempfile.TemporaryDirectory(prefix="photon-bench-") as base:
            _print_whole(options.events, measure_whole(options.events, options.rounds, Path(base)))
        return
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
