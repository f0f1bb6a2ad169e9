"""The verifier clears durable records, by compare, and reports those it cannot clear."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from photon.adapters.envelope import Envelope
from photon.config.disk import RealDisk
from photon.outputs.damaged import add_damaged
from photon.outputs.log.format import DamagedRange
from photon.outputs.published import PublishedDamaged
from photon.verifier.verifier import Verifier, VerifierDamaged, VerifierLimits
from tests.lines import undone_lines
from tests.simulation.world.registry import CLEARED
from tests.unit.joiner.helpers import DIGESTER, SLOT, FakeRegistry, event

NAME = "joined/s0-000001.jsonl"
TOKEN = 1 << 40 | 1


class Setup:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.registry = FakeRegistry(shards=1)
        (path / "state").mkdir()
        (path / "out/joined").mkdir(parents=True)

    def verifier(self, **limits: int) -> Verifier:
        return Verifier(
            RealDisk(),
            self.path / "state",
            self.path / "out",
            DIGESTER,
            self.registry,
            limits=VerifierLimits(**limits),  # type: ignore[arg-type]
        )

    def lines(self, ids: list[bytes], *, owned: bool = True, token: int = TOKEN) -> list[bytes]:
        events = [event(each, b"k") for each in ids]
        if owned:
            for each in events:
                self.registry.model.insert(SLOT, 1, each.digest, each.event_time_ns, token, 1, 0)
        return undone_lines(Envelope(), events, ["r"] * len(ids), token=token, at_ns=0)

    def publish(self, data: bytes, durable: int | None = None) -> None:
        (self.path / "out" / NAME).write_bytes(data)
        length = len(data) if durable is None else durable
        text = msgspec.json.encode({"version": 1, "slot": "s0", "files": {NAME: length}, "rolled": []})
        (self.path / "state/durable.json").write_bytes(text)

    def cleared(self) -> dict[str, object]:
        found: dict[str, object] = msgspec.json.decode((self.path / "state/verifier/cleared.json").read_bytes())
        return found


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


async def test_clears_below_the_durable_length_only(setup: Setup) -> None:
    lines = setup.lines([b"a", b"b", b"c"])
    setup.publish(b"".join(lines), len(lines[0] + lines[1]))
    report = await setup.verifier().run_once()
    assert (report.cleared, report.behind_bytes) == (2, 0)
    states = [setup.registry.model.shards[0].entries[DIGESTER.digest(each)].state for each in (b"a", b"b", b"c")]
    assert states == [CLEARED, CLEARED, "owned"]
    assert setup.cleared()["files"] == {NAME: len(lines[0] + lines[1])}


async def test_goes_on_where_its_predecessor_stood(setup: Setup) -> None:
    first, second = setup.lines([b"a", b"b"])
    setup.publish(first)
    await setup.verifier().run_once()
    setup.publish(first + second)
    assert (await setup.verifier().run_once()).cleared == 1


async def test_blocks_and_calls_are_bounded_and_lines_may_be_longer(setup: Setup) -> None:
    lines = setup.lines([b"%d" % n for n in range(25)] + [b"x" * 500])
    setup.publish(b"".join(lines))
    report = await setup.verifier(block_bytes=300, clear_ids=2).run_once()
    assert (report.cleared, report.behind_bytes) == (26, 0)


async def test_what_nobody_answers_is_asked_again(setup: Setup) -> None:
    setup.publish(b"".join(setup.lines([b"a"])))
    setup.registry.down = {0}
    verifier = setup.verifier()
    report = await verifier.run_once()
    assert report.unknown == 1
    assert report.behind_bytes > 0
    setup.registry.down = set()
    assert (await verifier.run_once()).cleared == 1


async def test_a_record_that_its_token_does_not_own_is_trouble(setup: Setup) -> None:
    good = setup.lines([b"a", b"b"])
    invented = setup.lines([b"c"], owned=False)
    doubled = setup.lines([b"a"], owned=False, token=TOKEN + 1)
    setup.publish(b"".join(good + invented + doubled))
    report = await setup.verifier().run_once()
    assert (report.cleared, report.refused, report.behind_bytes) == (2, 2, 0)
    assert "b'c'" in report.examples[0]
    assert setup.cleared()["trouble"] == {NAME: 2}


async def test_an_unreadable_line_does_not_hide_the_others(setup: Setup) -> None:
    first, second = setup.lines([b"a", b"b"])
    setup.publish(first + b"garbage\r\n" + second)
    report = await setup.verifier().run_once()
    assert (report.cleared, report.unreadable) == (2, 1)
    assert f"{NAME}:{len(first)}" in report.examples[0]


async def test_an_unreadable_position_is_an_error_that_says_what_to_do(setup: Setup) -> None:
    setup.publish(b"".join(setup.lines([b"a"])))
    await setup.verifier().run_once()
    (setup.path / "state/verifier/cleared.json").write_bytes(b"{")
    with pytest.raises(VerifierDamaged, match="remove it"):
        await setup.verifier().run_once()


async def test_unreadable_published_lengths_are_restored_and_not_removed(setup: Setup) -> None:
    (setup.path / "state/durable.json").write_bytes(b"{")
    with pytest.raises(PublishedDamaged, match="restore it"):
        await setup.verifier().run_once()


async def test_files_that_became_final_are_forgotten(setup: Setup) -> None:
    setup.publish(b"".join(setup.lines([b"a"])))
    verifier = setup.verifier()
    await verifier.run_once()
    text = msgspec.json.encode({"version": 1, "slot": "s0", "files": {}})
    (setup.path / "state/durable.json").write_bytes(text)
    assert (await verifier.run_once()).behind_bytes == 0


async def test_runs_until_it_is_stopped(setup: Setup) -> None:
    setup.publish(b"".join(setup.lines([b"a"])))
    verifier = setup.verifier()
    stop = asyncio.Event()
    task = asyncio.create_task(verifier.run(stop))
    async with asyncio.timeout(60):
        while not verifier.total.cleared:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
    stop.set()
    await task
    assert verifier.total.cleared == 1


async def test_a_damaged_range_is_passed_over_without_an_alarm(setup: Setup) -> None:
    lines = setup.lines([b"a", b"b", b"c", b"d"])
    setup.publish(b"".join(lines))
    begin, end = len(lines[0]), len(lines[0] + lines[1] + lines[2])
    state = setup.path / "state"
    (setup.path / "out" / NAME).write_bytes(lines[0] + b"x" * (end - begin - 1) + b"\n" + lines[3])
    add_damaged(RealDisk(), state, "s0", [DamagedRange(NAME, begin, end, "", "")])
    report = await setup.verifier().run_once()
    assert (report.cleared, report.unreadable, report.behind_bytes) == (2, 0, 0)
    states = [
        setup.registry.model.shards[0].entries[DIGESTER.digest(each)].state for each in (b"a", b"b", b"c", b"d")
    ]
    assert states == [CLEARED, "owned", "owned", CLEARED]
    length = sum(map(len, lines))
    assert setup.cleared()["files"] == {NAME: length}
    (setup.path / "out" / NAME).unlink()
    add_damaged(RealDisk(), state, "s0", [DamagedRange(NAME, 0, length, "", "")])
    for again in (setup.verifier(), setup.verifier()):
        again.findings = Mock()  # looks for twins, and reads the end of what was cleared once more for it
        assert (await again.run_once()).behind_bytes == 0
        again.findings.unreadable.assert_not_called()


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_file_is_read_again_once_its_bad_line_is_left_out(setup: Setup, restarted: bool) -> None:
    lines = setup.lines([b"a", b"b", b"c"])
    begin, end = len(lines[0]), len(lines[0] + lines[1])
    setup.publish(lines[0] + b"x" * (end - begin - 1) + b"\n" + lines[2])
    verifier = setup.verifier()
    assert (await verifier.run_once()).unreadable == 1
    assert setup.cleared()["trouble"] == {NAME: 1}
    add_damaged(RealDisk(), setup.path / "state", "s0", [DamagedRange(NAME, begin, end, "", "")])
    report = await (setup.verifier() if restarted else verifier).run_once()
    assert (report.cleared, report.unreadable, report.behind_bytes) == (2, 0, 0)
    assert setup.cleared()["trouble"] == {}
    assert (await verifier.run_once()).cleared == (2 if restarted else 0)
