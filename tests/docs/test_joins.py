"""The examples in docs/joins.md become what the page says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import orjson
import pytest

from photon.adapters.contract import Joined, Unpaired
from photon.adapters.join_adapters import adapter_of
from photon.adapters.testkit.samples import read_samples
from photon.adapters.testkit.trial import try_file
from photon.config.loader import convert

TEXT = (Path(__file__).parents[2] / "docs" / "joins.md").read_text()
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
    assert EXAMPLES == ["keys", "normalised", "bounds"]
