"""The code in docs/adapters.md works as written."""

import re
import tomllib
from pathlib import Path

from photon.adapters.contract import Filtered, Joined, LogFile
from photon.adapters.loader import load_adapter
from photon.config.loader import convert

TEXT = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text()
FILE = LogFile("a.log")


def _write_blocks(tmp_path: Path) -> None:
    for code in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        name = re.match(r"# (\w+\.py)\n", code)
        assert name is not None
        (tmp_path / name[1]).write_text(code)


def test_the_rules_filter_bots(tmp_path: Path) -> None:
    _write_blocks(tmp_path)
    [toml] = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    join = convert(tomllib.loads(toml), "docs").join["clicks"]
    assert join.adapter is not None
    adapter = load_adapter(join.adapter, join.options, tmp_path)
    click = b'{"click_id":"c","query_id":"q","time_us":5}'
    header = adapter.foreign_header(click, FILE)
    assert (header.key, header.event_id, header.event_time_ns) == (b"q", b"c", 5000)
    assert isinstance(adapter.join(click, FILE, b'{"query_id":"q","bot":true}', FILE), Filtered)
    query = b'{"query_id":"q"}'
    assert adapter.join(click, FILE, query, FILE) == Joined(click, query)


def test_the_own_format_is_read(tmp_path: Path) -> None:
    _write_blocks(tmp_path)
    adapter = load_adapter("pipes.py:Pipes", {}, tmp_path)
    header = adapter.foreign_header(b"c1|k1|7|text", FILE)
    assert (header.event_id, header.key, header.event_time_ns) == (b"c1", b"k1", 7 * 10**9)
    assert adapter.primary_keys(b"k1|a\nbroken\nk2|b\n", FILE) == [b"k1", None, b"k2"]
