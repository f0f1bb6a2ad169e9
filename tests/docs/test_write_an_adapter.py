"""The code in docs/write-an-adapter.md works as written."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest

from photon.adapters.contract import Adapter, AdapterError, BadRecord, Filtered, ForeignHeader, LogFile
from photon.adapters.loader import load_adapter
from photon.adapters.testkit import Samples
from photon.adapters.testkit.checks import check_framing
from photon.adapters.testkit.samples import read_samples
from photon.joiner.foreign_columns import headers_of

TEXT = (Path(__file__).parents[2] / "docs" / "write-an-adapter.md").read_text()
FILE = LogFile("a.log")
SIDES = {
    "primary": {"format": "jsonl", "key": "q"},
    "foreign": {"format": "jsonl", "key": "q", "id": "id", "time": {"field": "ms", "unit": "ms"}},
}


@pytest.fixture
def code(tmp_path: Path) -> Path:
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        name = re.match(r"# (\w+\.py)\n", block)
        assert name is not None
        (tmp_path / name[1]).write_text(block)
    return tmp_path


def test_options_are_named_and_checked(code: Path) -> None:
    adapter = load_adapter("discounts.py:Discounts", {**SIDES, "least": 2.5}, code)
    cheap, dear = (b'{"id":"c","q":"k","ms":1,"price":%d}' % price for price in (2, 3))
    assert isinstance(adapter.join(cheap, FILE, b"{}", FILE), Filtered)
    assert not isinstance(adapter.join(dear, FILE, b"{}", FILE), Filtered)
    with pytest.raises(AdapterError, match="did you mean 'least'"):
        load_adapter("discounts.py:Discounts", {**SIDES, "leest": 2.5}, code)


def test_lines_that_belong_together(code: Path) -> None:
    foreign = {"format": "regex", "pattern": r"(?P<ms>\d+) (?P<q>\w+)(?P<text>(?s:.*))", "key": "q",
               "time": {"field": "ms", "unit": "ms"}}  # fmt: skip
    adapter = load_adapter("zeros.py:Errors", {"primary": SIDES["primary"], "foreign": foreign}, code)
    (code / "a.log").write_bytes(b"\x00".join((b"1 a first\n  at x", b"2 b second", b"3 c third\n  at y", b"")))
    found = read_samples(adapter, "foreign", code / "a.log")
    assert [each.record for each in found.samples] == [
        b"1 a first\x0b  at x", b"2 b second", b"3 c third\x0b  at y",
    ]  # fmt: skip
    assert check_framing(adapter, Samples(begins=[("foreign", "a.log", found.begin)])) == []


def test_a_table_lies_next_to_the_code(code: Path) -> None:
    (code / "prices.json").write_text('{"top": 7}')
    adapter = load_adapter("prices.py:Prices", SIDES, code)
    assert orjson.loads(adapter.foreign_payload(b'{"slot":"top"}', FILE) or b"")["price"] == 7
    with pytest.raises(BadRecord):
        adapter.foreign_payload(b'{"slot":"side"}', FILE)


def test_columns_say_what_each_record_says(code: Path) -> None:
    adapter = load_adapter("columns.py:Clicks", {}, code)
    good = [b'{"id":"c%d","query":"q%d","ms":%d}' % (n, n, n) for n in range(3)]
    assert headers_of(good, FILE, adapter).rows() == Adapter.header_columns(adapter, good, FILE).rows()
    made = headers_of([*good, b"{"], FILE, adapter)
    assert list(made.others) == [3]
    assert made.rows()[0] == ForeignHeader(b"q0", 0, b"c0")
