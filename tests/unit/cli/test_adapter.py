"""``photon adapter test`` and ``list``: output, reasons for rejected lines, and exit codes."""

from __future__ import annotations

import gzip
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import orjson
import pytest

from photon.adapters import entry_points as module
from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import AdapterError
from photon.adapters.entry_points import adapter_class
from photon.adapters.loader import load_adapter
from tests.unit.adapters.messages import write_messages
from tests.unit.refusals import one_line, photon, refused

SIDES = """
[join.clicks.primary]
format = "csv"
key = "q"
multiline = true
[join.clicks.foreign]
format = "logfmt"
key = "q"
id = "click"
time = { field = "at", format = "iso8601" }
"""


def files(tmp_path: Path, primary: bytes, foreign: bytes, config: str = SIDES) -> tuple[object, ...]:
    (tmp_path / "photon.toml").write_text(config)
    (tmp_path / "q.csv").write_bytes(primary)
    (tmp_path / "c.log").write_bytes(foreign)
    sides = ("--primary", tmp_path / "q.csv", "--foreign", tmp_path / "c.log")
    return ("adapter", "test", tmp_path / "photon.toml", *sides)


GOOD = b'click=c1 q=q1 at=2024-01-01T00:00:00Z extra="x y" cached\n'


def test_what_is_read_is_shown(tmp_path: Path) -> None:
    result = photon(*files(tmp_path, b'q,text\nq1,"two\nlines"\nq2,one\n', GOOD))
    assert result.exit_code == 0, result.output
    assert "c1" in result.output
    assert "2024-01-01T00:00:00.000000Z" in result.output
    assert "extra=x y cached=true" in result.output
    assert "1 of 1 foreign records name one of these primary records" in result.output


def test_lines_that_are_rejected_are_named_with_their_numbers(tmp_path: Path) -> None:
    primary = b'q,text\r\nq1,"two\nlines"\r\n\r\nbroken\r\n,none\r\nq2,"a\nb\nc"\r\nx\r\n'
    result = photon(*files(tmp_path, primary, GOOD + b"q=q1\n"), "-o", "json")
    assert result.exit_code == 3
    out = orjson.loads(result.output)
    assert [(each["line"], each["key"], each["fields"]["text"]) for each in out["primary"]["read"]] == [
        (2, "q1", "two\nlines"), (7, "q2", "a\nb\nc"),
    ]  # fmt: skip
    assert [(each["line"], each["reason"]) for each in out["primary"]["rejected"]] == [
        (5, "has 1 fields, not 2"), (6, "key field 'q' is empty"), (10, "has 1 fields, not 2"),
    ]  # fmt: skip
    assert out["primary"]["rejected"][0]["record"] == "broken"
    lines = primary.splitlines(keepends=True)
    assert out["primary"]["read"][1]["offset"] == sum(map(len, lines[:6]))
    assert out["foreign"]["read"][0]["event_time_ns"] == 1_704_067_200 * 10**9
    assert out["foreign"]["rejected"][0] == {
        "line": 2, "offset": len(GOOD), "reason": "time field 'at' is missing", "record": "q=q1",
    }  # fmt: skip
    assert out["matched"] == 1


def test_a_key_that_several_records_share_is_told_unless_they_are_alike(tmp_path: Path) -> None:
    primary = b"q,t\nq1,x\nq2,y\nq1,x\nq1,z\nq2,w\n"
    arguments = files(tmp_path, primary, GOOD)
    result = photon(*arguments)
    assert result.exit_code == 0, result.output
    assert "2 keys have several different primary records: 'q1' is in " in result.output
    assert "offsets 4 and 19 (lines 2 and 5)" in result.output
    assert "events are joined to the first in file order (primary.duplicates)" in result.output
    shown = orjson.loads(photon(*arguments, "-o", "json").stdout)["ambiguous"]
    assert shown == [{"key": "q1", "offsets": [4, 19]}, {"key": "q2", "offsets": [9, 24]}]


@pytest.mark.parametrize(
    ("foreign", "code", "says"),
    [
        (b"", 1, "holds no record"),
        (b"nothing here\n", 1, "line 1 is rejected: key field 'q' is missing"),
        (b"\xff\xfe\x00\n", 1, "line 1 is rejected"),
    ],
)
def test_a_file_of_which_nothing_can_be_read(tmp_path: Path, foreign: bytes, code: int, says: str) -> None:
    result = photon(*files(tmp_path, b"q,t\nq1,x\n", foreign))
    assert (result.exit_code, says in result.output) == (code, True), result.output


REGEX = r"""
[join.errors.primary]
format = "csv"
key = "q"
[join.errors.foreign]
format = "regex"
pattern = '(?P<at>[^ ]+) \[(?P<who>\w+)\] req=(?P<q>\w+) - (?P<text>.*)'
key = "q"
time = { field = "at", format = "iso8601" }
"""


def test_records_that_are_rejected_for_one_reason_are_told_once_and_where_they_cease_to_fit(tmp_path: Path) -> None:
    good = b"2024-01-01T00:00:00Z [a] req=q1 - x\n"
    broken = b"2024-01-01T00:00:01Z [a] id=q1 - x\n"
    foreign = broken + good + b"".join([broken] * 12) + b"yesterday [a] req=q1 - x\nsoon [b] req=q2 - y\n"
    arguments = files(tmp_path, b"q,t\nq1,x\n", foreign, REGEX)
    result = photon(*arguments)
    assert result.exit_code == 3, result.output
    told = result.output[result.output.index("line 1 is rejected") :].splitlines()
    assert told[0] == (
        "line 1 is rejected: does not match the pattern (so are lines 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 2 more)"
    )
    assert told[1] == "    2024-01-01T00:00:01Z [a] id=q1 - x"
    assert told[2] == " " * 29 + r"^ here the pattern expects req=(?P<q>\w+) - (?P<text>.*)"
    assert told[3].startswith("line 15 is rejected: time field 'at' = 'yesterday' ")
    assert told[3].endswith(" (so is line 16)")
    first = orjson.loads(photon(*arguments, "-o", "json").stdout)["foreign"]["rejected"][0]
    assert (first["fits_until"], first["wanted"]) == (25, r"req=(?P<q>\w+) - (?P<text>.*)")


def test_no_pairs_among_the_samples_is_explained(tmp_path: Path) -> None:
    result = photon(*files(tmp_path, b"q,t\nother,x\n", GOOD))
    assert "0 of 1 foreign records name one of these primary records\n  the first 20 of each file" in result.output


def test_usage(tmp_path: Path) -> None:
    arguments = files(tmp_path, b"q,t\nq1,x\n", GOOD)
    assert photon(*arguments[:3]).exit_code == 2
    assert "no such file" in refused(photon(*arguments[:4], tmp_path / "none.csv"))
    (tmp_path / "photon.toml").write_text(SIDES.replace("logfmt", "logfnt"))
    assert "format = 'logfnt' is not possible; write one of" in refused(photon(*arguments))


def test_zeek_messages_and_compressed_files(tmp_path: Path) -> None:
    config = """
[join.x.primary]
format = "zeek"
key = "uid"
[join.x.foreign]
format = "protobuf"
descriptor = "event.pb"
message = "test.Event"
key = "key.name"
time = { field = "number", unit = "s" }
"""
    messages = write_messages(tmp_path / "event.pb", [("u1", "x"), ("u2", "y")])
    zeek = b"#separator \\x09\n#fields\tuid\tx\n#types\tstring\tcount\nu1\t5\n"
    zeek += b"#fields\tx\tuid\n#types\tcount\tstring\n6\tu2\n"
    arguments = list(files(tmp_path, b"", messages, config))
    (tmp_path / "conn.log.gz").write_bytes(gzip.compress(zeek))
    arguments[4] = tmp_path / "conn.log.gz"
    result = photon(*arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    out = orjson.loads(result.output)
    assert [(each["line"], each["fields"]) for each in out["primary"]["read"]] == [
        (4, {"uid": "u1", "x": 5}), (7, {"x": 6, "uid": "u2"}),
    ]  # fmt: skip
    assert [(each["line"], each["key"]) for each in out["foreign"]["read"]] == [(1, "u1"), (2, "u2")]
    (tmp_path / "c.log").write_bytes(messages[:-1])
    torn = photon(*arguments, "-o", "json")
    assert torn.exit_code == 3
    assert orjson.loads(torn.output)["foreign"]["fault"] == "the file ends in the middle of a record"


class Good(ConfiguredAdapter):
    """From a package."""


NO_ADAPTER = 17


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> None:
    good = f"{__name__}:Good"
    listed = [("good", good), ("broken", "no_such_package.adapters:Thing"), ("none", f"{__name__}:NO_ADAPTER")]
    listed += [("twice", good), ("twice", f"{__name__}:Other")]
    found = EntryPoints([EntryPoint(name, value, module.GROUP) for name, value in listed])

    def entry_points(name: str | None = None) -> EntryPoints:
        return found if name is None else found.select(name=name)

    monkeypatch.setattr(module, "_entry_points", entry_points)


def test_adapters_of_packages_are_listed_and_loaded(points: None, tmp_path: Path) -> None:
    result = photon("adapter", "show", "-o", "json")
    assert result.exit_code == 3
    out = orjson.loads(result.output)
    assert {"zeek", "logfmt", "protobuf"} <= set(out["formats"])
    rows = {each["name"]: each for each in out["adapters"]}
    assert (rows["good"]["summary"], rows["good"]["fault"]) == ("From a package.", None)
    assert "cannot be imported (ModuleNotFoundError" in rows["broken"]["fault"]
    assert "is not a subclass" in rows["none"]["fault"]
    assert "is in several packages" in rows["twice"]["fault"]
    table = photon("adapter", "show")
    assert table.exit_code == 3
    assert "From a package." in table.output
    sides = {"primary": {"format": "zeek", "key": "uid"}, "foreign": {"format": "zeek-json", "key": "uid"}}
    loaded = load_adapter("good", sides, tmp_path)
    assert type(loaded) is Good
    assert loaded.primary_framing.kind == "zeek"


def test_names_that_no_package_brings(points: None, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=r"'nothing' is not an adapter.*installed one .broken, good, none, twice"):
        load_adapter("nothing", {}, tmp_path)
    for name in ("broken", "none", "twice"):
        with one_line(AdapterError, name):
            adapter_class(name)


def test_the_contract_is_checked_too(tmp_path: Path) -> None:
    arguments = files(tmp_path, b"q,t\nq1,x\n", GOOD)
    table = photon(*arguments)
    assert table.exit_code == 0, table.output
    assert (
        "checks kept: version, deterministic, elsewhere, untouched, batches, bad lines, framing, speed"
        in table.output
    )
    assert "speed: primary_keys " in table.output
    out = orjson.loads(photon(*arguments, "-o", "json").output)
    assert out["checks"] == {name: [] for name in out["checks"]}
    assert out["speed"]["join"] > 1000
    (tmp_path / "mine.py").write_text(
        "from photon.adapters.configured import ConfiguredAdapter\n"
        "class Mine(ConfiguredAdapter):\n"
        "    def primary_key(self, record, file):\n"
        "        self.asked = getattr(self, 'asked', 0) + 1\n"
        "        return super().primary_key(record, file) + b'%d' % self.asked\n"
    )
    config = '[join.clicks]\nadapter = "mine.py:Mine"\n' + SIDES.replace("[join.clicks.", "[join.clicks.options.")
    wrong = photon(*files(tmp_path, b"q,t\nq1,x\nq2,x\n", GOOD, config))
    assert wrong.exit_code == 1
    assert "check deterministic: " in wrong.output
    unchecked = photon(*arguments, "--no-checks")
    assert (unchecked.exit_code, "checks kept" in unchecked.output) == (0, False)


def test_init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = photon("adapter", "init", "acme")
    assert made.exit_code == 0
    assert "next: cd acme && pip install -e" in made.output
    assert "src/other/adapter.py" in orjson.loads(photon("adapter", "init", "other", "-o", "json").output)["files"]
    assert "already exists" in refused(photon("adapter", "init", "acme"))


def test_an_adapter_that_hangs_is_told_and_ends(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from photon.adapters.configured import ConfiguredAdapter\n"
        "class Mine(ConfiguredAdapter):\n"
        "    def primary_key(self, record, file):\n"
        "        while record.startswith(b'q2'):\n"
        "            pass  # for ever\n"
        "        return super().primary_key(record, file)\n"
    )
    config = '[limits]\nadapter_timeout = "200ms"\n[join.clicks]\nadapter = "mine.py:Mine"\n'
    config += SIDES.replace("[join.clicks.", "[join.clicks.options.")
    result = photon(*files(tmp_path, b"q,t\nq1,x\nq2,x\n", GOOD, config), "--no-checks")
    assert result.exit_code == 3, result.output
    assert "line 3 is rejected: the adapter did not return within 0.2 s (" in result.output
    assert "mine.py:" in result.output


def test_pairs_out_of_bounds_are_told(tmp_path: Path) -> None:
    time = 'time = { field = "t", unit = "s" }\n'
    sides = "".join(
        f'[join.x.{side}]\nformat = "jsonl"\nkey = ["k", {{ field = "n", as = "number" }}]\n{time}{more}'
        for side, more in (("primary", ""), ("foreign", 'id = "id"\n'))
    )
    (tmp_path / "photon.toml").write_text('[join.x]\nwithin = { before = "1h" }\n' + sides)
    (tmp_path / "q.log").write_text('{"k":"a","n":7,"t":5}\n')
    (tmp_path / "c.log").write_text('{"id":"1","k":"a","n":"07","t":6}\n{"id":"2","k":"a","n":"7.0","t":4}\n')
    names = ("photon.toml", "--primary", "q.log", "--foreign", "c.log", "--no-checks")
    arguments = [str(tmp_path / name) if "." in name else name for name in names]
    out = orjson.loads(photon("adapter", "test", *arguments, "-o", "json").output)
    assert (out["matched"], out["unpaired"]) == (2, 1)
    assert [each["key"] for each in out["foreign"]["read"]] == ["a|7", "a|7"]
    said = photon("adapter", "test", *arguments).output
    assert "1 of them do not pair with it: line 2: the primary event is 0:00:01 newer, and within.after" in said
