"""Settings of a side about its text, from the configuration to the output: each reader makes the same of a file."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path
from typing import Any

import orjson
import pytest

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import LogFile
from photon.adapters.logs.slices import Reading, read_slice, standing_logs
from photon.adapters.logs.slices import cut as slices_of
from photon.adapters.testkit.samples import read_samples
from tests.unit.adapters.logs.tails import Tail

PRIMARY = {"format": "jsonl", "key": "k"}


def adapter(table: dict[str, Any]) -> ConfiguredAdapter:
    return ConfiguredAdapter({"primary": PRIMARY, "foreign": {"key": "k", **table}})


def read(directory: Path, table: dict[str, Any], data: bytes, name: str = "a.log") -> tuple[list[Any], list[str]]:
    """Keys with payloads, and reasons of what is rejected: the same by follower, slices and sample."""
    it = adapter(table)
    (directory / name).write_bytes(data)
    tail = Tail(directory, framing=it.foreign_framing, has_header=it.foreign_has_header)
    found = [(b.file, line.removesuffix(b"\r")) for b in tail.new(final=True) for line in b.data.split(b"\n")[:-1]]
    assert tail.problems == []
    reading = Reading(has_header=it.foreign_has_header, framing=it.foreign_framing)
    blocks = [
        block
        for log in standing_logs(directory, reading, lambda problem: pytest.fail(str(problem)))
        for part in slices_of(log, 7)
        for block in read_slice(directory, part, reading)
    ]
    sliced = [(b.file, line.removesuffix(b"\r")) for b in blocks for line in b.data.split(b"\n")[:-1]]
    assert sliced == found
    samples = read_samples(it, "foreign", directory / name).samples
    assert [(each.file, each.record) for each in samples] == [each for each in found if each[1]]
    side, out, bad = it._foreign, list[Any](), list[str]()
    for file, record in found:
        (payload,) = (made := side.payloads([record], [file])).payloads
        if made.bad or (key := side.keys_of([record], file)[0]) is None:
            bad.append(made.bad[0].reason if made.bad else f"no key: {record!r}")
            continue
        assert side.keys(record + b"\n", file) == [key]
        out.append((key.decode(), None if payload is None else orjson.loads(payload)))
    return out, bad


CSV = {"format": "csv"}
W3C = (
    b"#Software: IIS\r\n#Fields: date k cs(User-Agent)\r\n2024-01-01 a Mozilla/5.0+(X11)\r\n#Date: x\r\n"
    b'#Fields: k n\r\nb -\r\n"c d" 5\r\n'
)
TABLES: dict[str, tuple[dict[str, Any], bytes, list[Any]]] = {
    "cp1252": ({**CSV, "encoding": "cp1252"}, "k,größe\nä,é\n".encode("cp1252"), [("ä", {"k": "ä", "größe": "é"})]),
    "utf-16 jsonl": (
        {"format": "jsonl", "encoding": "utf-16"},
        '\ufeff{"k":"ä"}\r\n'.encode("utf-16-le"),
        [("ä", {"k": "ä"})],
    ),
    "no such character": (
        {**CSV, "encoding": "cp1252"},
        b"k,x\n1,\x81\n2,\xfc\n",
        [("1", None), ("2", {"k": "2", "x": "ü"})],
    ),
    "preamble": (
        {**CSV, "skip_lines": 2, "comment": "#"},
        b"Report\n2024\nk,n\n1,2\n#,\n3,4",
        [("1", {"k": "1", "n": "2"}), ("3", {"k": "3", "n": "4"})],
    ),
    "encoded, over lines": (
        {**CSV, "encoding": "utf-16", "multiline": True, "escape": "\\"},
        '\ufeffk,t\r\n1,"a\r\n\\"ü\\", b"\r\n2,c\r\n'.encode("utf-16-be"),
        [("1", {"k": "1", "t": 'a\r\n"ü", b'}), ("2", {"k": "2", "t": "c"})],
    ),
    "escape": (
        {**CSV, "escape": "\\"},
        b'k,t\n1,"a \\"b\\", c"\n2,"\\\\"\n3,C:\\dir\n4,x\\,y\n',
        [
            ("1", {"k": "1", "t": 'a "b", c'}),
            ("2", {"k": "2", "t": "\\"}),
            ("3", {"k": "3", "t": "C:\\dir"}),
            ("4", {"k": "4", "t": "x,y"}),
        ],
    ),
    "escape without quotes": (
        {"format": "tsv", "quote": "", "escape": "\\", "absent": "\\N"},
        b'k\tt\n1\t"a\\\tb\n2\t\\N\n',
        [("1", {"k": "1", "t": '"a\tb'}), ("2", {"k": "2"})],
    ),
    "long delimiter": (
        {**CSV, "delimiter": "::", "columns": ["k", "t"]},
        b'1::a:b\n2::"c::d"\n',
        [("1", {"k": "1", "t": "a:b"}), ("2", {"k": "2", "t": "c::d"})],
    ),
    "delimiter at the end": (
        {**CSV, "delimiter": "|", "columns": ["k", "t"]},
        b"1|a|\n",
        [("1", {"k": "1", "t": "a"})],
    ),
    "a name twice": ({**CSV}, b"k,n,n,n_2\n1,a,b,c\n", [("1", {"k": "1", "n": "a", "n_3": "b", "n_2": "c"})]),
    "blanks": (
        {"format": "blanks"},
        b'  k   size  name\n1    20\tx\n 2  3   "a b"  \n',
        [("1", {"k": "1", "size": "20", "name": "x"}), ("2", {"k": "2", "size": "3", "name": "a b"})],
    ),
    "w3c": (
        {"format": "w3c"},
        W3C,
        [
            ("a", {"date": "2024-01-01", "k": "a", "cs(User-Agent)": "Mozilla/5.0+(X11)"}),
            ("b", {"k": "b"}),
            ("c d", {"k": "c d", "n": "5"}),
        ],
    ),
    "logfmt in colour": (
        {"format": "logfmt", "colours": True},
        b"\x1b[36mk=\x1b[0m1 x=2\n",
        [("1", {"k": "1", "x": "2"})],
    ),
    "trace": (
        {"format": "regex", "pattern": "k=(?P<k>[^ ]+) (?P<text>.*)", "begins": "k="},
        b"k=1 it failed\n  at x\n\n at y\nk=2 b\n",
        [("1", {"k": "1", "text": "it failed\n  at x\n\n at y"}), ("2", {"k": "2", "text": "b"})],
    ),
    "csv in lines": (
        {**CSV, "columns": ["k", "t"], "continues": r"\s"},
        b"1,a\n b\n2,c\n",
        [("1", {"k": "1", "t": "a\n b"}), ("2", {"k": "2", "t": "c"})],
    ),
    "json over lines": (
        {"format": "jsonl", "begins": r"\{"},
        b'{"k":\n 1\n}\n{"k":2}\n',
        [("1", {"k": 1}), ("2", {"k": 2})],
    ),
    "json array": (
        {"format": "json"},
        b'[{"k":"1",\n"n":[{}]},{"k":"2"}]',
        [("1", {"k": "1", "n": [{}]}), ("2", {"k": "2"})],
    ),
    "json records": (
        {"format": "json", "records": "R"},
        b'{"v":1,"R":[{"k":"1"},\n{"k":"2"}]}\n',
        [("1", {"k": "1"}), ("2", {"k": "2"})],
    ),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_every_reader_reads_the_same(tmp_path: Path, name: str, suffix: str) -> None:
    table, data, want = TABLES[name]
    packed = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[suffix](data)
    found, bad = read(tmp_path, table, packed, f"a.log{suffix}")
    assert (found, bad) == (want, [])


@pytest.mark.parametrize("name", TABLES)
def test_each_setting_is_part_of_the_rule(name: str) -> None:
    table, _, _ = TABLES[name]
    rule = adapter(table).rule()
    for setting in ("encoding", "skip_lines", "comment", "begins", "continues", "colours", "records", "escape"):
        if setting in table:
            assert adapter({k: v for k, v in table.items() if k != setting}).rule() != rule
    if table.get("encoding") == "cp1252":
        assert adapter({**table, "encoding": "windows-1252"}).rule() == rule


@pytest.mark.parametrize(
    ("table", "data", "said"),
    [
        (CSV, b"sep=;\nk;n\n1;2\n", "declares the delimiter ';': write skip_lines = 1, delimiter = ';'"),
        (CSV, "k,n\n1,2\n".encode("utf-16"), 'its file is UTF-16 text: write encoding = "utf-16"'),
        (CSV, b"k,k\n1,2\n", "key column 'k' occurs twice"),
        ({"format": "jsonl"}, '{"k":1}\n'.encode("utf-16"), 'its file is UTF-16 text: write encoding = "utf-16"'),
        ({"format": "regex", "pattern": "(?P<k>.)x"}, "1x\n".encode("utf-16"), "UTF-16"),
        ({"format": "w3c"}, b"#Fields: n\n1\n", "key column 'k' is missing; the file has 'n'"),
        ({"format": "w3c"}, b"1 2\n", "no header"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, table: dict[str, Any], data: bytes, said: str) -> None:
    it = adapter(table)
    (tmp_path / "a.log").write_bytes(data)
    tail = Tail(tmp_path, framing=it.foreign_framing, has_header=it.foreign_has_header)
    block = tail.new(final=True)[0]
    made = it._foreign.payloads([block.data.split(b"\n")[0]], [LogFile("a.log", block.file.header)])
    assert said in made.bad[0].reason
