"""The code and the examples in docs/adapters.md work as written."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import orjson
import pytest

from photon.adapters.contract import Filtered, Joined, LogFile, Skipped
from photon.adapters.join_adapters import adapter_of
from photon.adapters.loader import load_adapter
from photon.adapters.testkit.trial import matches, try_file
from photon.config.loader import convert

TEXT = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text()
FILE = LogFile("a.log")
EXAMPLES = sorted(set(re.findall(r"```toml (\w+)\n", TEXT)) - {"shape"})


def _block(title: str) -> str:
    [text] = re.findall(rf"```{title}\n(.*?)```", TEXT, re.DOTALL)
    return str(text)


def _write_blocks(tmp_path: Path) -> None:
    for code in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        name = re.match(r"# (\w+\.py)\n", code)
        assert name is not None
        (tmp_path / name[1]).write_text(code)


def _write_clicks(tmp_path: Path) -> bytes:
    (tmp_path / "shop.proto").write_text(_block("proto"))
    _write_blocks(tmp_path)
    options = ["--include_imports", "--descriptor_set_out=shop.pb", "--python_out=.", "-I.", "shop.proto"]
    for command in (["-m", "grpc_tools.protoc", *options], ["write_clicks.py", "clicks.bin"]):
        subprocess.run([sys.executable, *command], cwd=tmp_path, check=True, timeout=60)
    return (tmp_path / "clicks.bin").read_bytes()


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_of_a_format_is_read_as_it_says(tmp_path: Path, name: str) -> None:
    settings = convert(tomllib.loads(_block(f"toml {name}")), "docs")
    foreign = _write_clicks(tmp_path) if name == "protobuf" else _block(f"text {name} foreign").encode()
    (tmp_path / "foreign").write_bytes(foreign)
    (tmp_path / "primary").write_text(_block(f"text {name} primary"))
    adapter = adapter_of(settings, next(iter(settings.join)), tmp_path)
    sides = [try_file(adapter, side, tmp_path / side) for side in ("primary", "foreign")]
    for trial in sides:
        assert trial.read
        assert (trial.rejected, trial.fault) == ([], "")
    assert matches(*sides) == len(sides[1].read)
    payload = sides[1].read[0].payload
    assert payload is not None
    assert orjson.loads(payload) == orjson.loads(_block(f"json {name}"))


def test_there_are_examples_of_the_formats() -> None:
    assert sorted(EXAMPLES) == ["cri", "csv", "logfmt", "parts", "protobuf", "regex", "zeek"]


def test_the_shape_does_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "hash.key").write_bytes(bytes(range(16)))
    adapter = adapter_of(convert(tomllib.loads(_block("toml shape")), "docs"), "orders", tmp_path)
    click = b'{"click":"c1","order":"o1","at":5,"session":"s3cret","url":"https://example.org/a"}'
    order = {"order": "o1", "plan": "pro", "mail": "a@example.org", "card": "4111111111111234", "agent": "Firefox"}
    joined = adapter.join(click, FILE, orjson.dumps(order), FILE)
    assert isinstance(joined, Joined)
    assert orjson.loads(joined.foreign or b"") == {
        "click": "c1", "host": "example.org", "tier": 1, "label": "pro/c1",
    }  # fmt: skip
    assert list(orjson.loads(joined.primary or b"")) == ["who", "card"]
    assert orjson.loads(joined.primary or b"")["card"] == "****1234"
    bot = adapter.join(click, FILE, orjson.dumps({**order, "agent": "SomeBot/1"}), FILE)
    assert bot == Filtered("the search came from a bot")
    with pytest.raises(Skipped):
        adapter.foreign_header(b'{"kind":"ping"}', FILE)


def test_the_rules_filter_bots(tmp_path: Path) -> None:
    _write_blocks(tmp_path)
    toml = next(each for each in re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL) if "join.clicks" in each)
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
