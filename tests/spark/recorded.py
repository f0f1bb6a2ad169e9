"""A recorded stream with its watermarks, and a topology over it, as ``photon compute run`` reads them."""

from __future__ import annotations

import json
import random
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from photon.config.disk import RealDisk
from photon.outputs.next_read import end_of
from photon.outputs.output_places import OutputPlace
from photon.outputs.published import SlotListing
from photon.outputs.reader import Reader
from photon.outputs.watermarks import Journal, Pair, pairs_of, read_journal
from tests.unit.outputs.helpers import WrittenSlot

SECOND = 1_000_000_000
BEGIN_NS = 1_760_100_000 * SECOND
CLICKS = """\
from photon.computing.examples.zeitgeist import Counter, Detector
from photon.computing import SECOND_NS, Topology
from photon.computing.windows import Windows, sum_of, tumbling

# all queries of a second, by a key that is not that of the computation before
counts = Windows("seconds", tumbling(SECOND_NS), {"count": sum_of(lambda record: record.value["count"])})
topology = Topology("clicks")
joined = topology.joined("recorded/out")
topology.add(
    Counter(), {joined: lambda record: record.value["primary"]["terms"]}, ["windows", "corrections"], "exact"
)
topology.add(Detector(), {"windows": lambda record: record.value["query"]}, ["anomalies"], "exact")
topology.add(counts, {"windows": lambda record: str(record.value["second"])}, (), "exact")
for stream in ("windows", "anomalies", "corrections", "seconds"):
    topology.publish(stream, f"streams/{stream}")
"""


def record(chance: random.Random, number: int, time_ns: int) -> bytes:
    terms = chance.choice(["tea", "Tee", "茶", *(f"q{n}" for n in range(30))])
    return json.dumps(
        {
            "event_id": f"e{number}",
            "key": f"k{number}",
            "event_time_ns": time_ns,
            "foreign": {"click": number},
            "primary": {"terms": terms},
            "source": {"file": "a", "offset": number},
            "primary_source": {"file": "b", "offset": number},
        }
    ).encode() + b"\n"  # fmt: skip


def write(base: Path, records: int, seconds: int, seed: int = 1) -> None:
    """``base/recorded/out``: not in order of time, but no record comes after a watermark that is later than it; and
    ``base/clicks.py``."""
    chance = random.Random(seed)
    slot = WrittenSlot(base / "recorded", "s0")
    slot.place = OutputPlace(base / "recorded" / "out", base / "recorded" / "out" / ".photon")
    slot.state = slot.place.state / "slots" / "s0"
    slot.state.mkdir(parents=True)
    times = sorted(BEGIN_NS + int(chance.triangular(0, seconds, seconds * 0.6) * SECOND) for _ in range(records))
    watermarks = Journal(RealDisk(), slot.place.state)
    watermarks.begin()
    at, file = 0, 1
    while at < records:
        some = times[at : at + records // 12]
        before = at
        at += len(some)
        chance.shuffle(some)
        slot.append(file, b"".join(record(chance, before + n, time_ns) for n, time_ns in enumerate(some)))
        if chance.random() < 0.4:
            slot.roll(file)
            file += 1
        low_ns = times[min(at, records - 1)] // (SECOND // 10) * (SECOND // 10)
        end = end_of([SlotListing(RealDisk(), slot.state).look()])
        watermarks.add(Pair(1, low_ns, low_ns, 0, end))
    watermarks.close()
    (base / "clicks.py").write_text(CLICKS)


def move_on(base: Path, seconds: int) -> int:
    """Time goes on without records: the watermark then."""
    with journal(base) as opened:
        pair = later(pairs_of(opened.begin())[-1], seconds)
        opened.add(pair)
    return pair.exact_ns or 0


def journal(base: Path) -> AbstractContextManager[Journal]:
    """The journal of watermarks; it is closed afterwards."""
    return closing(Journal(RealDisk(), base / "recorded" / "out" / ".photon"))


def later(pair: Pair, seconds: int) -> Pair:
    at_ns = (pair.exact_ns or 0) + seconds * SECOND
    return replace(pair, exact_ns=at_ns, percentile_ns=at_ns)


def complete_ns(base: Path) -> int | None:
    """Time up to which everything is published."""
    pairs = pairs_of(read_journal(RealDisk(), base / "streams" / "seconds" / ".photon"))
    return pairs[-1].exact_ns if pairs else None


def published(base: Path) -> dict[str, list[str]]:
    """Stream -> its published records, in a fixed order."""
    found: dict[str, list[str]] = {}
    for directory in sorted((base / "streams").iterdir()):
        reader = Reader(RealDisk(), OutputPlace.of_join(directory), ["joined"])
        lines = [line for block in reader.read() for line in block.data.splitlines()]
        values: list[dict[str, Any]] = [json.loads(line) for line in lines]
        found[directory.name] = sorted(
            json.dumps([each["event_time_ns"], each["foreign"]], sort_keys=True) for each in values
        )
    return found
