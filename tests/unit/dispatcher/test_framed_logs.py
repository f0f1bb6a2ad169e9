"""Skipping and replay enter logs that are more than lines at the same records as the follower."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter, ForeignHeader
from photon.adapters.loader import load_adapter
from photon.adapters.logs.api import Block, LogPosition
from photon.adapters.logs.follower import Follower
from photon.dispatcher.process import Places
from photon.dispatcher.replay.coverage import MAX_NS, MIN_NS, Chunk
from photon.dispatcher.replay.reading import LogFiles
from photon.dispatcher.skipping import plan_skips
from photon.idregistry.api import Digester
from tests.unit.adapters.framings import Prefixed, prefixed
from tests.unit.adapters.messages import delimited, descriptor_set, event_class

DIGESTER = Digester(bytes(32), "clicks")
Event = event_class(descriptor_set())
SECONDS = {"field": "ts", "unit": "s"}
ROWS = 4000
PRIMARY = {"format": "jsonl", "key": "k"}
SIDES: dict[str, dict[str, Any]] = {
    "zeek": {"format": "zeek", "key": "k", "id": "id"},
    "csv": {
        "format": "csv", "multiline": True, "columns": ["id", "ts", "k"], "key": "k", "id": "id", "time": SECONDS,
    },
    "cri": {"format": "jsonl", "framing": "cri", "key": "k", "id": "id", "time": "line"},
    "protobuf": {
        "format": "protobuf", "descriptor": "e.pb", "message": "test.Event", "key": "key.name", "id": "text",
        "time": {"field": "number", "unit": "s"},
    },
    "own": {"format": "jsonl", "key": "k", "id": "id", "time": SECONDS},
}  # fmt: skip


def written(name: str) -> bytes:
    if name == "own":
        return prefixed(b'{"id":"id%d","ts":%d,"k":"k%d"}' % (n, n, n) for n in range(1, ROWS))
    if name == "protobuf":
        return delimited(
            Event(key={"name": f"k{n}"}, text=f"id{n}", number=n).SerializeToString() for n in range(1, ROWS)
        )
    if name == "cri":
        heads = [
            f"1970-01-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}Z {('stdout', 'stderr')[n % 2]}"
            for n in range(ROWS)
        ]
        return "".join(f'{heads[n]} P {{"id":"id{n}",\n{heads[n]} F "k":"k{n}"}}\n' for n in range(1, ROWS)).encode()
    if name == "csv":
        return b"".join(b'id%d,%d,"k\n%d"\n' % (n, n, n) for n in range(1, ROWS))
    one, two = b"#separator \\x09\n#fields\tid\tts\tk\n", b"#separator \\x09\n#fields\tk\tts\tid\n"
    first = one + b"".join(b"id%d\t%d\tk%d\n" % (n, n, n) for n in range(1, ROWS // 2))
    return first + two + b"".join(b"k%d\t%d\tid%d\n" % (n, n, n) for n in range(ROWS // 2, ROWS))


@pytest.fixture(params=sorted(SIDES))
def site(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Places, Adapter]:
    logs = tmp_path / "logs"
    logs.mkdir()
    (tmp_path / "e.pb").write_bytes(descriptor_set())
    (logs / "a.log").write_bytes(written(request.param))
    adapter = load_adapter("configured", {"primary": PRIMARY, "foreign": SIDES[request.param]}, tmp_path)
    if request.param == "own":
        adapter.foreign_framing = Prefixed()
    return Places(foreign=logs, output=tmp_path / "out", state=tmp_path / "state", patterns=("**/*",)), adapter


def follower_of(places: Places, adapter: Adapter, positions: list[LogPosition]) -> Follower:
    return Follower(
        places.foreign, has_header=adapter.foreign_has_header, framing=adapter.foreign_framing, positions=positions
    )


def ids_of(adapter: Adapter, blocks: list[Block]) -> list[int]:
    found = []
    for block in blocks:
        for header in adapter.header_columns(block.data.split(b"\n")[:-1], block.file).rows():
            assert isinstance(header, ForeignHeader), header
            found.append(int(header.event_id[2:]))
    return found


def followed(places: Places, adapter: Adapter, positions: list[LogPosition]) -> list[Block]:
    follower = follower_of(places, adapter, positions)
    follower.scan()
    blocks = []
    while more := follower.poll(1 << 20):
        blocks += more
    follower.close()
    return blocks


def test_a_skip_lands_on_a_record_and_what_follows_is_read_right(site: tuple[Places, Adapter]) -> None:
    places, adapter = site
    assert isinstance(adapter, ConfiguredAdapter)
    everything = ids_of(adapter, followed(places, adapter, []))
    assert everything == list(range(1, ROWS))
    for to_s in (ROWS // 4, 3 * ROWS // 4):
        plan = plan_skips(places, adapter, [], to_s * 10**9)
        assert plan.problems == []
        (skip,) = plan.skips
        left = ids_of(adapter, followed(places, adapter, [skip.position()]))
        assert left == everything[ROWS - 1 - len(left) :]
        assert min(left) <= to_s, "nothing newer is left out"
        assert min(left) > 1, "something is"
    (whole,) = plan_skips(places, adapter, [], None).skips
    assert followed(places, adapter, [whole.position()]) == []


async def test_replay_reads_the_same_records(site: tuple[Places, Adapter]) -> None:
    places, adapter = site
    blocks = followed(places, adapter, [])
    files = LogFiles(
        places.foreign, places.patterns, has_header=False, max_record=1 << 20, framing=adapter.foreign_framing
    )
    end = blocks[-1].end
    found: list[int] = []
    for begin in range(0, end, 30_011):
        chunk = Chunk(blocks[0].identity, begin, min(begin + 30_011, end), MIN_NS, MAX_NS)
        found += ids_of(adapter, await files.blocks(chunk) or [])
    files.close()
    assert found == list(range(1, ROWS))
