"""Followers that divide a directory's logs: together they read what one follower reads, whatever happens to files."""

from __future__ import annotations

import gzip
import random
from collections import Counter
from pathlib import Path

import pytest

from photon.adapters.logs.follower import Follower
from photon.dispatcher.partitions import Partition, all_of

STEPS = 60


def _write(log: Path, lines: int, number: int) -> None:
    with log.open("ab") as file:
        file.write(b"".join(b"%s %d %d\n" % (log.name.encode(), number, n) for n in range(lines)))


def _step(directory: Path, draw: random.Random, number: int) -> None:
    """Appends, rotates, compresses, copies, truncates by copying, or renames one log."""
    logs = sorted(path for path in directory.iterdir() if path.suffix == ".log")
    log = directory / f"{draw.randrange(6)}.log"
    what = draw.randrange(9)
    if what < 4 or log not in logs:
        _write(log, draw.randint(1, 30), number)
    elif what == 4:
        log.rename(directory / f"{log.name}.{number}")
    elif what == 5:
        (directory / f"{log.name}.{number}.gz").write_bytes(gzip.compress(log.read_bytes()))
        log.unlink()
    elif what == 6:
        (directory / f"copy-{number}-{log.name}.bak").write_bytes(log.read_bytes())
    elif what == 7:
        (directory / f"{log.name}.{number}").write_bytes(log.read_bytes())
        log.write_bytes(b"")
    else:
        log.rename(directory / f"moved-{number}.txt")


@pytest.mark.parametrize("seed", range(6))
def test_together_they_read_each_line_once(tmp_path: Path, seed: int) -> None:
    draw, count = random.Random(seed), (2, 3, 4, 8)[seed % 4]

    def follower(partition: Partition) -> Follower:
        return Follower(tmp_path, has_header=False, mine=partition.holds if partition.name else None)

    one, several = follower(Partition()), [follower(each) for each in all_of(count)]
    read: dict[bool, Counter[bytes]] = {True: Counter(), False: Counter()}
    for number in range(STEPS):
        _step(tmp_path, draw, number)
        for each in (one, *several):
            each.scan()
            while blocks := each.poll(1 << 20):
                for block in blocks:
                    read[each is one].update(block.data.splitlines())
            assert each.caught_up()
    assert read[True] == read[False]
    assert set(read[True].values()) == {1}
    assert sum(not each.positions() for each in several) < count - 1, "the logs are divided"
    assert sum(each.backlog()[1] for each in several) == one.backlog()[1]
    identities = [position.identity for each in several for position in each.positions()]
    assert sorted(identities) == sorted(position.identity for position in one.positions())
    for each in (one, *several):
        each.close()
