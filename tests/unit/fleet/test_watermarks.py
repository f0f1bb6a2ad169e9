"""The report on a state's watermarks, apart from the last pair."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from photon.config.clock import NS_PER_S as S
from photon.config.loader import load
from photon.config.metrics.readings import ProcessMetrics
from photon.config.serving import HealthyServer, listen
from photon.fleet.watermarks import ASK_EVERY_S, VerifierTail, of_state
from photon.outputs.cursor import Cursor, OutputLog, Position
from photon.outputs.watermarks import JOURNAL, Pair
from photon.supervision.ports import free_ports
from tests.integration.commands import photon as command
from tests.unit.outputs.helpers import WrittenSlot


def test_since_when_each_of_the_two_has_stood_where_it_is(tmp_path: Path) -> None:
    found = of_state("east", "clicks", tmp_path)
    assert (found.pair, found.percentile_moved_ns, found.exact_moved_ns) == (None, 0, 0)
    times = [(1, 5, 6), (2, 5, 7), (3, 5, 8), (4, 5, 8)]
    pairs = [Pair(at_ns, exact_ns, percentile_ns, 0, Cursor()) for at_ns, exact_ns, percentile_ns in times]
    path = tmp_path / JOURNAL
    path.parent.mkdir()
    path.write_bytes(b"".join(pair.encode() + b"\n" for pair in pairs))
    found = of_state("east", "clicks", tmp_path)
    assert (found.pair, found.percentile_moved_ns, found.exact_moved_ns) == (pairs[-1], 3, 1)


EXAMPLE = Path(__file__).parents[3] / "config" / "examples" / "two_datacentres.toml"


class Verifier:
    """East's verifier, on another machine, which reports its newest pair."""

    def __init__(self, base: Path) -> None:
        text = EXAMPLE.read_text()
        address = load(EXAMPLE, environment={}).datacentre["east"].at("verifier")[0]
        assert address is not None
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        self.file = base / "photon.toml"
        self.file.write_text(text.replace(address, self.address))
        self.pair = _pair(1, 10)

    async def listen(self) -> HealthyServer:
        details = {"watermark": {"line": ""}}

        def said() -> dict[str, Any]:
            details["watermark"]["line"] = self.pair.encode().decode()
            return details

        server = await listen(self.address, "photon.v1.Verifier", metrics=ProcessMetrics((), said))
        await server.serving()
        return server


LOG = OutputLog("east-1", "joined")


def _pair(second: int, at: int) -> Pair:
    return Pair(second * S, second * S, second * S, 0, Cursor({LOG: Position(1, at)}))


async def test_a_reader_is_told_the_watermark_of_another_machine_once_it_has_read_so_far(tmp_path: Path) -> None:
    verifier, told = Verifier(tmp_path), list[str]()
    server = await verifier.listen()
    tail = VerifierTail(load(verifier.file, environment={}), "east", None, ["joined"], told.append)
    behind, there = Cursor({LOG: Position(1, 9)}), Cursor({LOG: Position(1, 10)})
    assert await asyncio.to_thread(tail.moved, behind) is None
    assert tail.moved(there) == verifier.pair
    assert tail.moved(there) is None
    verifier.pair = _pair(2, 20)
    for at, found in ((19, None), (20, verifier.pair)):
        await asyncio.sleep(4 * ASK_EVERY_S)
        assert tail.moved(Cursor({LOG: Position(1, at)})) == found
    assert told == []
    await server.stop(0.0)
    async with asyncio.timeout(30):
        while not told:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert told[0].startswith("verifier east does not answer: ")


async def test_photon_read_reads_the_copies_of_another_machine_and_asks_its_verifier(tmp_path: Path) -> None:
    verifier = Verifier(tmp_path)
    server = await verifier.listen()
    kept = tmp_path / "west" / "state" / "copies" / "east"
    slot = WrittenSlot(tmp_path / "made", "east-1")
    data = b'{"event_id":"c1"}\n'
    slot.append(1, data)
    slot.state.rename(make(kept) / "east-1")
    slot.place.output.rename(kept / "east-1" / "output")
    (kept / "east-1" / "copy.json").write_text("{}")
    verifier.pair = _pair(1, len(data))
    read = ("read", "--config", verifier.file, "--datacentre", "east", "--with-watermark")
    done = await asyncio.to_thread(command, *read)
    await server.stop(0.0)
    assert (done.code, done.out, done.err) == (0, f"{data.decode()}{verifier.pair.encode().decode()}\n", "")
    silent = await asyncio.to_thread(command, *read)
    assert (silent.code, silent.out) == (0, data.decode())
    assert silent.err.startswith("photon: verifier east does not answer: ")


def make(directory: Path) -> Path:
    directory.mkdir(parents=True)
    return directory
