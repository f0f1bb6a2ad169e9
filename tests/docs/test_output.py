"""The examples in docs/output.md are of the formats that it describes."""

import re
from pathlib import Path

import msgspec
import pytest

from photon.outputs.log.format import Damaged, Durable, ManifestEntry

TEXT = (Path(__file__).parents[2] / "docs" / "output.md").read_text()


def test_it_is_one_page() -> None:
    assert len(TEXT.split()) <= 1500


@pytest.mark.parametrize(("title", "form"), [("durable", Durable), ("manifest", ManifestEntry), ("damaged", Damaged)])
def test_each_example_is_what_is_written(title: str, form: type[msgspec.Struct]) -> None:
    [example] = re.findall(rf"```json {title}\n(.*?)\n```", TEXT, re.DOTALL)
    written = msgspec.json.encode(msgspec.json.decode(example, type=form))
    assert written.startswith(example.encode().removesuffix(b"}"))
