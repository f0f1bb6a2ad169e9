"""The code and the examples in docs/adapters.md work as written."""

import re
import subprocess
import sys
import tomllib
from io import BytesIO
from pathlib import Path

import orjson
import pytest
from google.protobuf import proto
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message_factory import GetMessages

from photon.adapters.contract import Filtered, Joined, LogFile, Skipped
from photon.adapters.join_adapters import adapter_of
from photon.adapters.testkit.trial import matches, try_file
from photon.adapters.times import rfc3339_us
from photon.config.loader import convert

TEXT = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text()
FILE = LogFile("a.log")
EXAMPLES = sorted(set(re.findall(r"```toml (\w+)\n", TEXT)) - {"shape", "side"})


def _block(title: str) -> str:
    [text] = re.findall(rf"```{title}\n(.*?)```", TEXT, re.DOTALL)
    return str(text)


def _write_clicks(tmp_path: Path) -> bytes:
    (tmp_path / "shop.proto").write_text(_block("proto"))
    command = ["--include_imports", "--descriptor_set_out=shop.pb", "-I.", "shop.proto"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *command], cwd=tmp_path, check=True, timeout=60)
    files = FileDescriptorSet.FromString((tmp_path / "shop.pb").read_bytes())
    click = GetMessages(files.file)["shop.Click"](click_id="c1", query={"id": "q1"}, price_micros=1_250_000)
    click.at.FromJsonString("2024-03-01T08:00:00.5Z")
    log = BytesIO()
    proto.serialize_length_prefixed(click, log)
    return log.getvalue()


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
    assert EXAMPLES == ["cri", "csv", "logfmt", "parts", "protobuf", "regex", "zeek"]


def _rows(heading: str) -> dict[str, str]:
    """The cells of a heading's table: what a reader has, and the first words between backticks behind it."""
    [table] = re.findall(rf"## {heading}\n.*?\n\| --- \| --- \|\n((?:\|[^\n]*\n)+)", TEXT, re.DOTALL)
    rows = (re.match(r"\| (.*?) \| .*?`(.*?)`", line) for line in table.splitlines())
    return {row[1]: row[2] for row in rows if row is not None}


CSV = {
    "no header": b"1,17,2\n",
    "semicolons, or `::`, between fields": b"order;at\n17;1\n",
    "line ends inside quotes": b'order,note\n17,"a\nb"\n',
    '`\\"` for a quote': b'note,order\n"a\\"b",17\n',
    "no quotes, but quote characters in the text": b'note,order\n"a,17\n',
    "a title, or `sep=;`, above the header": b"Orders of May\norder,at\n17,1\n",
    "comments": b"# by hand\norder,at\n17,1\n",
}
SIDES: dict[str, tuple[dict[str, str], bytes, bytes]] = {  # what else the side has, a log, its key
    "My log says NULL or - for no value": ({"format": "csv", "key": "order"}, b"order,at\n17,NULL\n", b"17"),
    "My log is not UTF-8, or has colours": ({"key": "order"}, b'\x1b[1m{"order":"\xe9"}\n', "é".encode()),
    "My key is written in two ways, or is two fields": (
        {"format": "csv"}, b"shop,mail\n7, Ann@example.org\n", b"7|ann@example.org",
    ),
    "My JSON is inside a text, or nested": (
        {}, orjson.dumps({"log": orjson.dumps({"request": {"id": "r1"}}).decode()}) + b"\n", b"r1",
    ),
    "My events are all in one list": ({"key": "order"}, b'{"Records":[\n{"order":17}\n]}\n', b"17"),
    "Only some lines are events": (
        {"key": "order"},
        b'{"event_type":"flow","order":16}\n{"event_type":"alert","order":17}\n', b"17",
    ),
    "One event is many lines": (
        {"format": "regex", "key": "order", "pattern": r"(?P<at>[^ ]+) order (?P<order>[0-9]+)"},
        b"2024-03-01 order 17\n  broke\n2024-03-02 order 18\n", b"17",
    ),
}  # fmt: skip
TIMES = {
    "numbers since 1970": ({"ts": 1709287200123}, "2024-03-01T10:00:00.123"),
    "text": ({"at": "01.03.2024 11:00"}, "2024-03-01T10:00:00"),
    "day and time in two fields": ({"date": "2024-03-01", "time": "10:00:00"}, "2024-03-01T10:00:00"),
    "no year, as classic syslog": ({"at": "Mar  1 10:00:00"}, "2025-03-01T10:00:00"),
    "Windows FILETIME; .NET ticks; Swift's dates": ({"at": 133537608000000000}, "2024-03-01T10:00:00"),
    "TAI64N": ({"at": f"@{(1 << 62) + 1709287210:x}00000000"}, "2024-03-01T10:00:00"),
}


def _keys(tmp_path: Path, side: dict[str, object], log: bytes) -> list[bytes]:
    (tmp_path / "a.log").write_bytes(log)
    settings = convert({"join": {"a": {"primary": side, "foreign": {"format": "jsonl", "key": side["key"]}}}}, "docs")
    trial = try_file(adapter_of(settings, "a", tmp_path), "primary", tmp_path / "a.log")
    assert (trial.rejected, trial.fault) == ([], "")
    return [each.key for each in trial.read]


def test_each_odd_csv_is_read_as_it_says(tmp_path: Path) -> None:
    rows = _rows("My CSV has …")
    assert list(rows) == list(CSV)
    for what, log in CSV.items():
        side = {"format": "csv", "key": "order", **tomllib.loads(rows[what])}
        assert _keys(tmp_path, side, log) == [b"17"], what


def test_each_recipe_of_a_side_reads_its_log(tmp_path: Path) -> None:
    recipes = dict(re.findall(r"## ([^\n]+)\n\n(?:(?!\n## ).)*?```toml side\n(.*?)```", TEXT, re.DOTALL))
    assert recipes.keys() == SIDES.keys()
    for heading, (more, log, key) in SIDES.items():
        side = {"format": "jsonl", **more, **tomllib.loads(recipes[heading])}
        assert key in _keys(tmp_path, side, log)[:1], heading


def test_each_time_is_read_as_it_says() -> None:
    rows = _rows("My log has no time, or an odd one")
    assert list(rows)[: len(TIMES)] == list(TIMES)
    for what, (record, time) in TIMES.items():
        given = rows[what] if rows[what].startswith("{") else f'{{ field = "at", {rows[what]} }}'
        side = {"format": "jsonl", "key": "k", **tomllib.loads(f"time = {given}")}
        settings = convert({"join": {"a": {"primary": {"format": "jsonl", "key": "k"}, "foreign": side}}}, "docs")
        line = orjson.dumps({"k": "1", **record})
        header = adapter_of(settings, "a", Path()).foreign_header(line, LogFile("a.log", line))
        assert rfc3339_us(header.event_time_ns).startswith(time), what


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
