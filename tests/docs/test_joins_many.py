"""The configurations of the page are ones, and its records are what Photon reads and the verifier checks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from photon.adapters.contract import Matching
from photon.adapters.envelope_reader import pair_of
from photon.adapters.join_adapters import adapter_of_join
from photon.config.loader import convert
from photon.verifier.published_lines import read_published

PAGE = (Path(__file__).parents[2] / "docs" / "joins-many.md").read_text()
MINUTE = 60 * 10**9


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def test_each_configuration_makes_an_adapter_that_matches_so(tmp_path: Path) -> None:
    found = []
    for block in blocks("toml"):
        ((name, join),) = convert(tomllib.loads(block), "page").join.items()
        found.append(adapter_of_join(join, name, tmp_path).matching)
    assert found == [Matching("all", 60 * MINUTE, 5 * MINUTE), Matching("latest", MINUTE, 0)]


def test_the_records_are_two_pairs_of_one_event() -> None:
    (block,) = blocks("json")
    lines = block.encode().splitlines(keepends=True)
    assert [pair_of(line) for line in lines] == [(1, 2), (2, 2)]
    assert [read_published(line).pair for line in lines] == [(1, 2), (2, 2)]
