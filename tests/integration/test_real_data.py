"""``photon join`` on the real sets, in every order of arrival: exactly the expected pairs, both ends."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL

import pytest

from tests.integration.commands import Result, drawn_seed, interrupt, photon, running, until
from tests.integration.datasets import NAMES, Dataset
from tests.integration.forked import begin

ROUNDS = 20 if os.environ.get("PHOTON_FULL") else 2  # rounds with kills, each with a fresh seed


@pytest.fixture(params=NAMES)
def dataset(request: pytest.FixtureRequest) -> Dataset:
    return Dataset.load(request.param)


class Site:
    """Two log directories that fill up, and an output."""

    def __init__(self, dataset: Dataset, tmp_path: Path) -> None:
        self.dataset = dataset
        self.directory = tmp_path
        self.output = tmp_path / "out"
        for side in ("primary", "foreign"):
            (tmp_path / side).mkdir()

    def arguments(self) -> list[str]:
        place = self.directory
        return [
            "join", "--config", str(self.dataset.config), "--output", str(self.output),
            "--primary", str(place / "primary"), "--foreign", str(place / "foreign"),
        ]  # fmt: skip

    def append(self, side: str, file: str, data: bytes) -> None:
        with open(self.directory / side / file, "ab", buffering=0) as f:
            f.write(data)

    def fill(self, side: str) -> None:
        for file, data in self.dataset.files[side].items():
            self.append(side, file, data)

    def once(self, *more: str) -> Result:
        result = photon(*self.arguments(), "--once", "-o", "json", *more)
        assert result.code == 0, result.err
        return result

    def finish(self) -> None:
        """Writes everything still missing; then the pairs and the ledger are exact."""
        ledger = self.once().json
        self.dataset.check(self.output)
        expected = self.dataset.expected
        unmatched = sum(count for (_, _, primary), count in expected.items() if primary == "-")
        assert ledger["joined"] == expected.total() - unmatched
        assert ledger["unmatched"] == unmatched
        assert ledger["read"] == expected.total()
        assert ledger["pending"] == ledger["rejected"] == ledger["duplicate"] == ledger["late"] == 0


@pytest.fixture
def site(dataset: Dataset, tmp_path: Path) -> Site:
    return Site(dataset.beginning(), tmp_path)


def test_as_they_lie_compressed_and_complete(dataset: Dataset, tmp_path: Path) -> None:
    """Both sides complete, still as .gz; a second run adds nothing."""
    arguments = [
        "join", "--once", "-o", "json", "--config", str(dataset.config), "--output", str(tmp_path / "out"),
        "--primary", str(dataset.folder / "primary"), "--foreign", str(dataset.folder / "foreign"),
    ]  # fmt: skip
    for _ in range(2):
        result = photon(*arguments)
        assert result.code == 0, result.err
        assert result.json["joined"] + result.json["unmatched"] == dataset.expected.total()
        dataset.check(tmp_path / "out")


def test_primaries_first(site: Site) -> None:
    site.fill("primary")
    site.once()
    site.fill("foreign")
    site.finish()


def test_foreigns_first(site: Site) -> None:
    site.fill("foreign")
    ledger = site.once("--keep-pending").json
    assert ledger["pending"] == site.dataset.expected.total()
    site.fill("primary")
    site.finish()


def test_recorded_replay_order_while_following(site: Site, tmp_path: Path) -> None:
    joinable = sum(n for (_, _, primary), n in site.dataset.expected.items() if primary != "-")
    with running(*site.arguments(), log=tmp_path / "join.log") as process:
        for side, file, data in _in_runs(site.dataset.replay()):
            site.append(side, file, data)
        until(lambda: site.dataset.pairs([site.output]).total() >= joinable, 60, "all that can be joined is joined")
        assert interrupt(process) == 0, (tmp_path / "join.log").read_text()
    site.finish()


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_both_growing_in_chunks_that_split_lines_with_kills(site: Site, tmp_path: Path, round_: int) -> None:
    rnd = random.Random(drawn_seed())
    for piece in _pieces(site.dataset, rnd, parts=4):
        process = begin(*site.arguments(), stdout=DEVNULL, stderr=DEVNULL)
        try:
            for side, file, data in piece:
                site.append(side, file, data)
                time.sleep(rnd.random() * 0.02)
            time.sleep(rnd.random() * 1.5)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    site.finish()


def _in_runs(lines: Iterator[tuple[str, str, bytes]]) -> Iterator[tuple[str, str, bytes]]:
    """Neighbouring lines of one file in one piece."""
    held: tuple[str, str, bytes] | None = None
    for side, file, data in lines:
        if held is not None and held[:2] == (side, file):
            held = (side, file, held[2] + data)
            continue
        if held is not None:
            yield held
        held = (side, file, data)
    if held is not None:
        yield held


def _pieces(dataset: Dataset, rnd: random.Random, parts: int) -> Iterator[list[tuple[str, str, bytes]]]:
    """All bytes of all files, cut at random places and shuffled over the files, in ``parts`` lists."""
    queues: dict[tuple[str, str], list[bytes]] = {}
    for side, files in dataset.files.items():
        for file, data in files.items():
            cuts = sorted({0, len(data), *(rnd.randrange(len(data)) for _ in range(6))})
            queues[side, file] = [data[a:b] for a, b in itertools.pairwise(cuts)]
    order = [place for place, queue in queues.items() for _ in queue]
    rnd.shuffle(order)
    chunks = [(side, file, queues[side, file].pop(0)) for side, file in order]
    each = -(-len(chunks) // parts)
    for start in range(0, len(chunks), each):
        yield chunks[start : start + each]
