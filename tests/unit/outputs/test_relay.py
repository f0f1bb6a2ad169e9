"""Published files become logs of the next join, through rolling and compression.

Kills and power cuts: ``tests/simulation/log/test_copier.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.outputs import OutputPlace
from photon.outputs.damaged import add_damaged
from photon.outputs.log.copier import RelayedLogLost, whole_ns
from photon.outputs.log.format import DamagedRange, retired_bytes
from photon.outputs.relay import Relay
from tests.unit.outputs.helpers import WrittenSlot, lines


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


@pytest.fixture
def slot(tmp_path: Path) -> WrittenSlot:
    slot = WrittenSlot(tmp_path)
    slot.append(1, lines(0, 3))
    return slot


def relay_of(slot: WrittenSlot, logs: Path) -> Relay:
    return Relay(RealDisk(), slot.place, logs, "east")


def copied(slot: WrittenSlot, logs: Path) -> int:
    """Copied by a process that lives for one step, and saves."""
    relay = relay_of(slot, logs)
    try:
        size = sum(relay.step())
        relay.save()
        return size
    finally:
        relay.close()


def test_only_what_is_published_is_copied(slot: WrittenSlot, logs: Path) -> None:
    slot.append(1, lines(3, 3), publish=False)
    slot.append(1, b'{"rejected":1}\n', "rejected")

    assert copied(slot, logs) == len(lines(0, 3))

    assert (logs / "s0-000001.jsonl").read_bytes() == lines(0, 3)
    assert [path.name for path in logs.iterdir() if not path.name.startswith(".")] == ["s0-000001.jsonl"]


def test_files_become_logs_of_the_same_names_however_they_are_compressed_meanwhile(
    tmp_path: Path, logs: Path
) -> None:
    slot = WrittenSlot(tmp_path)
    slot.append(1, lines(0, 5))
    relay = relay_of(slot, logs)
    sum(relay.step())
    slot.append(1, lines(5, 5))
    slot.roll(1)
    slot.append(2, lines(10, 5))
    slot.finish(1)
    assert relay.behind() == len(lines(5, 10))

    assert sum(relay.step()) == len(lines(5, 10))

    assert (logs / "s0-000001.jsonl").read_bytes() == lines(0, 10)
    assert (logs / "s0-000002.jsonl").read_bytes() == lines(10, 5)
    assert (relay.behind(), relay.events) == (0, 15)
    relay.close()


def test_finished_logs_may_be_moved_away_and_the_newest_may_not(slot: WrittenSlot, logs: Path) -> None:
    slot.roll(1)
    slot.append(2, lines(3, 3))
    copied(slot, logs)
    (logs / "s0-000001.jsonl").unlink()
    slot.append(2, lines(6, 3))

    assert copied(slot, logs) == len(lines(6, 3))
    assert not (logs / "s0-000001.jsonl").exists()

    (logs / "s0-000002.jsonl").unlink()
    slot.append(2, lines(9, 3))
    with pytest.raises(RelayedLogLost, match=r"s0-000002\.jsonl.*but it has 0; restore it uncompressed"):
        copied(slot, logs)


def test_what_went_into_a_file_that_was_taken_away_is_not_counted_as_copied(
    tmp_path: Path, slot: WrittenSlot, logs: Path
) -> None:
    relay = relay_of(slot, logs)
    sum(relay.step())
    relay.save()
    (logs / "s0-000001.jsonl").rename(tmp_path / "elsewhere")
    slot.append(1, lines(3, 3))
    sum(relay.step())
    with pytest.raises(RelayedLogLost):
        relay.save()
    relay.close()

    (tmp_path / "elsewhere").rename(logs / "s0-000001.jsonl")
    copied(slot, logs)
    assert (logs / "s0-000001.jsonl").read_bytes() == lines(0, 6)


def test_a_retired_slot_is_not_read_any_more(slot: WrittenSlot, logs: Path) -> None:
    copied(slot, logs)
    slot.append(1, lines(3, 3))
    (slot.state / "retired.json").write_bytes(retired_bytes("s0"))

    assert copied(slot, logs) == 0


def test_copies_of_an_output_that_is_on_another_machine_are_read_live(tmp_path: Path, logs: Path) -> None:
    copy = tmp_path / "kept" / "west" / "west-1"
    slot = WrittenSlot(tmp_path, "west-1")
    slot.append(1, lines(0, 3))
    (copy / "output" / "joined").mkdir(parents=True)
    (copy / "copy.json").write_text("{}")
    (copy / "durable.json").write_bytes((slot.state / "durable.json").read_bytes())
    (copy / "output" / slot.name(1)).write_bytes(slot.path(1).read_bytes() + lines(3, 3))
    nowhere = tmp_path / "nowhere"
    relay = Relay(RealDisk(), OutputPlace(nowhere, nowhere, (copy.parent,), live=True), logs, "west")

    assert sum(relay.step()) == len(lines(0, 3))

    assert (logs / "west-1-000001.jsonl").read_bytes() == lines(0, 3)
    relay.close()


def test_one_process_at_a_time_copies_an_output(slot: WrittenSlot, logs: Path) -> None:
    relay = relay_of(slot, logs)
    with pytest.raises(UsageError, match="another process"):
        relay_of(slot, logs)
    relay.close()


def test_up_to_when_all_is_copied_is_said_once_a_second(slot: WrittenSlot, logs: Path) -> None:
    relay = relay_of(slot, logs)
    for now_s, said_s in ((100, 100), (100.5, 100), (101, 101)):
        relay.pass_on(int(now_s * 1e9))
        assert whole_ns(logs) == said_s * 10**9
    relay.close()


def test_damaged_ranges_are_blank_lines_and_offsets_stay(slot: WrittenSlot, logs: Path) -> None:
    """A file that is completely gone has no log: one of blank lines would have no identity."""
    data = lines(0, 3)
    first, second = data.find(b"\n") + 1, data.rfind(b"\n", 0, -1) + 1
    slot.roll(1)
    for number in (2, 3, 4):
        slot.append(number, data)
        slot.roll(number)
    slot.append(5, data)
    slot.remove(2)
    marks = [(1, first, second), (2, 0, len(data)), (3, 0, first), (4, second, len(data))]
    ranges = [DamagedRange(slot.name(number), start, end, "", "") for number, start, end in marks]
    add_damaged(RealDisk(), slot.state, "s0", ranges)

    copied(slot, logs)

    found = {path.name: path.read_bytes() for path in sorted(logs.glob("s0-*"))}
    assert found == {
        "s0-000001.jsonl": data[:first] + b"\n" * (second - first) + data[second:],
        "s0-000003.jsonl": b"\n" * first + data[first:],
        "s0-000004.jsonl": data[:second] + b"\n" * (len(data) - second),
        "s0-000005.jsonl": data,
    }
    slot.append(5, data)
    assert copied(slot, logs) == len(data)
    assert (logs / "s0-000005.jsonl").read_bytes() == 2 * data
