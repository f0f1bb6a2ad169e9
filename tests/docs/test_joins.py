"""The examples in docs/joins.md become what the page says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import orjson
import pytest

from photon.adapters.contract import Joined, Matching, Unpaired
from photon.adapters.envelope_reader import pair_of
from photon.adapters.join_adapters import adapter_of, adapter_of_join
from photon.adapters.testkit.samples import read_samples
from photon.adapters.testkit.trial import try_file
from photon.config.loader import convert
from photon.verifier.published_lines import read_published

TEXT = (Path(__file__).parents[2] / "docs" / "joins.md").read_text()
MINUTE_NS = 60 * 10**9
EXAMPLES = re.findall(r"```toml (\w+)\n", TEXT)


def _block(title: str) -> str:
    [text] = re.findall(rf"```{title}\n(.*?)```", TEXT, re.DOTALL)
    return str(text)


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_ends_as_it_says(tmp_path: Path, name: str) -> None:
    settings = convert(tomllib.loads(_block(f"toml {name}")), "docs")
    adapter = adapter_of(settings, next(iter(settings.join)), tmp_path)
    for side in ("primary", "foreign"):
        (tmp_path / side).write_text(_block(f"text {name} {side}"))
    queries = try_file(adapter, "primary", tmp_path / "primary")
    assert not queries.rejected
    primaries = {
        adapter.primary_key(each.record, each.file): each
        for each in read_samples(adapter, "primary", tmp_path / "primary", 100).samples
    }
    found = {}
    trial = try_file(adapter, "foreign", tmp_path / "foreign")
    for event in trial.read:
        assert event.event_id is not None
        sample = next(each for each in trial.samples if each.offset == event.offset)
        said = event.key.decode()
        if (primary := primaries.get(event.key)) is None:
            said = "unmatched"
        else:
            result = adapter.join(sample.record, sample.file, primary.record, primary.file)
            assert isinstance(result, Joined | Unpaired)
            said = result.reason if isinstance(result, Unpaired) else said
        found[event.event_id.decode()] = said
    for each in trial.rejected:
        [name_of_it] = re.findall(rb"\bv\d", each.record)
        found[name_of_it.decode()] = each.reason
    assert found == orjson.loads(_block(f"json {name}"))


def test_there_is_one_for_each_kind() -> None:
    assert EXAMPLES == ["keys", "normalised", "bounds", "left"]


def test_each_configuration_of_several_primaries_matches_so(tmp_path: Path) -> None:
    found = []
    for block in re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL):
        ((name, join),) = convert(tomllib.loads(block), "page").join.items()
        found.append(adapter_of_join(join, name, tmp_path).matching)
    assert found == [Matching("all", 60 * MINUTE_NS, 5 * MINUTE_NS), Matching("latest", MINUTE_NS, 0)]


def test_the_records_are_two_pairs_of_one_event() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    lines = block.encode().splitlines(keepends=True)
    assert [pair_of(line) for line in lines] == [(1, 2), (2, 2)]
    assert [read_published(line).pair for line in lines] == [(1, 2), (2, 2)]


def test_the_records_of_a_left_join_are_what_its_logs_make() -> None:
    lines = _block("json left records").encode().splitlines(keepends=True)
    assert [read_published(line).reason for line in lines] == [None, "no primary event has this key"]
    said = [orjson.loads(line) for line in lines]
    assert [each["foreign"] for each in said] == [
        orjson.loads(line) for line in _block("text left foreign").splitlines()
    ]
    assert [each["primary"] for each in said] == [{"article": "a1", "title": "On joins"}, None]
