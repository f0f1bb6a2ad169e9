"""The real data sets: their files, their expected pairs, and a comparison with the pairs that Photon wrote."""

from __future__ import annotations

import gzip
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from photon.lab.demo.check import records

NAMES = ("ads_olist_funnel", "net_zeek_apt29", "ob_lobster_aapl")
CONFIGS = {"ads_olist_funnel": "olist", "net_zeek_apt29": "zeek", "ob_lobster_aapl": "lobster"}
EXAMPLES = Path(__file__).parents[2] / "config" / "examples"

Pair = tuple[str, str, str]  # (foreign file:line, key, primary file:line or -), as in expected/pairs.tsv.gz


def root() -> Path:
    """Directory of the data sets; skips the test if they are missing."""
    place = os.environ.get("PHOTON_TEST_DATA")
    if not place:
        pytest.skip("PHOTON_TEST_DATA does not name the folder with the real data sets")
    return Path(place)


@dataclass(slots=True)
class Dataset:
    """One set, decompressed: ``files["foreign"]["update.0930.csv"]`` is that file's bytes."""

    name: str
    folder: Path
    files: dict[str, dict[str, bytes]]
    expected: Counter[Pair]
    # ``side/file`` -> offset -> line number in the original file.
    numbers: dict[str, dict[int, int]] = field(default_factory=dict)

    @classmethod
    def load(cls, name: str) -> Dataset:
        folder = root() / name
        files = {
            side: {path.name.removesuffix(".gz"): gzip.decompress(path.read_bytes()) for path in _gz(folder / side)}
            for side in ("primary", "foreign")
        }
        text = gzip.decompress((folder / "expected" / "pairs.tsv.gz").read_bytes()).decode()
        expected: Counter[Pair] = Counter()
        for line in text.splitlines():
            foreign, key, primary = line.replace(".gz:", ":").split("\t")
            expected[foreign, key, primary] += 1
        return cls(name, folder, files, expected)

    def beginning(self) -> Dataset:
        """The first two files of each side of the largest set, whose pairs need no others."""
        if self.name != NAMES[-1]:
            return self
        files = {side: dict(itertools.islice(each.items(), 2)) for side, each in self.files.items()}
        kept = tuple(f"foreign/{file}:" for file in files["foreign"])
        expected = Counter({pair: n for pair, n in self.expected.items() if pair[0].startswith(kept)})
        return replace(self, files=files, expected=expected)

    @property
    def config(self) -> Path:
        return EXAMPLES / f"{CONFIGS[self.name]}.toml"

    def has_header(self) -> bool:
        return self.name == "ads_olist_funnel"

    def replay(self) -> Iterator[tuple[str, str, bytes]]:
        """(side, file, line with its end) in the recorded order of arrival.

        This is not always the files' own order: the lines are renumbered as they come, for ``pairs``.
        """
        text = gzip.decompress((self.folder / "expected" / "replay.tsv.gz").read_bytes()).decode()
        places = [(row.split("\t")[2].replace(".gz:", ":")) for row in text.splitlines()]
        if self.has_header():
            places = [f"{side}/{file}:1" for side, each in self.files.items() for file in each] + places
        lines = {
            f"{side}/{file}": data.splitlines(keepends=True)
            for side, each in self.files.items()
            for file, data in each.items()
        }
        ends = dict.fromkeys(lines, 0)
        self.numbers = {place: {} for place in lines}
        for place in places:
            path, _, number = place.rpartition(":")
            if path not in lines:
                continue
            line = lines[path][int(number) - 1]
            self.numbers[path][ends[path]] = int(number)
            ends[path] += len(line)
            side, _, file = path.partition("/")
            yield side, file, line

    def _line(self, side: str, file: str, offset: int) -> str:
        """``side/file:line`` of the record that starts at the offset."""
        name = file.removesuffix(".gz")
        place = f"{side}/{name}"
        if place not in self.numbers:
            at, numbers = 0, {}
            for number, line in enumerate(self.files[side][name].splitlines(keepends=True), 1):
                numbers[at] = number
                at += len(line)
            self.numbers[place] = numbers
        assert offset in self.numbers[place], f"{place}: no record starts at offset {offset}"
        return f"{place}:{self.numbers[place][offset]}"

    def pairs(self, outputs: Iterable[Path]) -> Counter[Pair]:
        """Photon's pairs, in the form of the expected pairs."""
        found: Counter[Pair] = Counter()
        for output in outputs:
            for log in ("joined", "unmatched"):
                for record in records(output / log):
                    foreign = self._line("foreign", record["source"]["file"], record["source"]["offset"])
                    primary = "-"
                    if log == "joined":
                        source = record["primary_source"]
                        primary = self._line("primary", source["file"], source["offset"])
                    found[foreign, record["key"], primary] += 1
        return found

    def check(self, *outputs: Path) -> None:
        """Checks for exactly the expected pairs, each once."""
        found = self.pairs(outputs)
        missing, extra = self.expected - found, found - self.expected
        assert not missing, f"{missing.total()} pairs missing, for instance {sorted(missing)[:3]}"
        assert not extra, f"{extra.total()} pairs too many, for instance {sorted(extra)[:3]}"


def _gz(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.gz"))
