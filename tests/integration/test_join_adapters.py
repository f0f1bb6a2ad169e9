"""`photon join` with adapters that raise, return nonsense, print or exit: they lose their record and nothing else."""

from __future__ import annotations

from pathlib import Path

from photon.lab.demo.check import records
from tests.integration.commands import Result
from tests.integration.join_logs import Logs

FAILED, ATTENTION = 1, 3
CONFIG = """
[join.clicks]
adapter = "mine.py:Mine"
[join.clicks.options.primary]
format = "jsonl"
key = "query_id"
[join.clicks.options.foreign]
format = "jsonl"
key = "query_id"
id = "click_id"
time = { field = "time_us", unit = "us" }
"""
BASE = """
import json
import orjson
from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter, BadRecord, Filtered, ForeignHeader, Joined, Payloads


class Mine(ConfiguredAdapter):
    header_columns = Adapter.header_columns
    primary_keys = Adapter.primary_keys

"""
QUERIES = 16


class Site(Logs):
    """Queries q1 … q16 and clicks c1 … c16, each click with its own query."""

    def __init__(self, base: Path, source: str) -> None:
        super().__init__(base, clicks=1)
        self.config.write_text(CONFIG)
        (base / "mine.py").write_text(BASE + source)
        with (self.primary / "q.log").open("w") as queries, (self.foreign / "c.log").open("w") as clicks:
            for n in range(1, QUERIES + 1):
                queries.write(f'{{"query_id":"q{n}"}}\n')
                clicks.write(f'{{"click_id":"c{n}","query_id":"q{n}","time_us":{1_760_000_000_000_000 + n}}}\n')

    def line_of(self, text: str) -> str:
        """``mine.py:LINE``, as an error names it."""
        lines = (self.base / "mine.py").read_text().splitlines()
        return f"mine.py:{next(at for at, line in enumerate(lines, 1) if text in line)}"

    def reasons(self) -> dict[str, str]:
        """Click -> why it was rejected."""
        return {r["record"].split('"')[3]: r["reason"] for r in records(self.output / "rejected")}

    def clicks(self, log: str) -> set[str]:
        return {record["event_id"] for record in records(self.output / log)}


def rest(*without: str) -> set[str]:
    return {f"c{n}" for n in range(1, QUERIES + 1)} - set(without)


def balanced(result: Result, **counts: int) -> None:
    ledger = result.json
    assert ledger == {**dict.fromkeys(ledger, 0), "read": QUERIES, **counts}


def test_what_join_raises_or_returns_ends_its_event_only(tmp_path: Path) -> None:
    site = Site(
        tmp_path,
        """
    def join(self, foreign, foreign_file, primary, primary_file):
        click = orjson.loads(foreign)["click_id"]
        if click == "c1":
            raise KeyError("boom")
        if click == "c2":
            json.loads("{")  # in a library
        if click == "c3":
            raise SystemExit(5)
        if click == "c4":
            return self.join(foreign, foreign_file, primary, primary_file)
        print("an adapter prints")
        good = super().join(foreign, foreign_file, primary, primary_file)
        return {
            "c5": None, "c6": 17, "c7": Joined(b"no json", b"{}"), "c8": Joined("text", b"{}"),
            "c9": Joined(b"{}\\n", b"{}"), "c10": Filtered("a bot"), "c11": Joined(None, None),
        }.get(click, good)
""",
    )
    result = site.once()
    assert result.code == ATTENTION
    balanced(result, joined=6, filtered=1, rejected=9)
    assert result.err.splitlines()[-1].startswith("photon: 9 records rejected in this run, see ")
    assert "Traceback" not in result.err
    reasons = site.reasons()
    assert reasons.keys() == {f"c{n}" for n in range(1, 10)}
    assert reasons["c1"].startswith("the adapter raised KeyError: 'boom' (")
    assert site.line_of('raise KeyError("boom")') in reasons["c1"]
    assert "JSONDecodeError" in reasons["c2"]
    assert site.line_of("in a library") in reasons["c2"]
    assert reasons["c3"].startswith("the adapter raised SystemExit: 5")
    assert reasons["c4"].startswith("the adapter raised RecursionError")
    assert reasons["c5"] == "the adapter returned NoneType, not Joined, Filtered or Unpaired"
    assert reasons["c6"] == "the adapter returned int, not Joined, Filtered or Unpaired"
    assert reasons["c7"].startswith("the adapter's payload is not JSON")
    assert reasons["c8"] == "the adapter's payload is str, not bytes or None"
    assert reasons["c9"] == "the adapter's payload holds a line end"
    assert site.clicks("filtered") == {"c10"}
    assert site.clicks("joined") == rest(*reasons, "c10")
    assert {r["event_id"] for r in records(site.output / "joined") if "foreign_raw_base64" in r} == {"c11"}


def test_what_foreign_header_raises_or_returns_ends_its_record_only(tmp_path: Path) -> None:
    site = Site(
        tmp_path,
        """
    def foreign_header(self, record, file):
        click = orjson.loads(record)["click_id"]
        if click == "c1":
            raise ZeroDivisionError("ouch")
        if click == "c2":
            raise BadRecord("I do not like it")
        if click == "c3":
            raise SystemExit(7)
        return {
            "c4": None, "c5": ForeignHeader("q5", 5, b"c5"), "c6": ForeignHeader(b"q6", 5.5, b"c6"),
            "c7": ForeignHeader(b"q7", 5, "c7"), "c8": ForeignHeader(b"q8", 2**70, b"c8"),
            "c9": ForeignHeader(b"q9", 5, b""),
        }.get(click, super().foreign_header(record, file))
""",
    )
    result = site.once()
    assert result.code == ATTENTION
    balanced(result, joined=7, rejected=9)
    reasons = site.reasons()
    assert reasons.keys() == {f"c{n}" for n in range(1, 10)}
    assert reasons["c1"].startswith("the adapter raised ZeroDivisionError: ouch (")
    assert site.line_of('ZeroDivisionError("ouch")') in reasons["c1"]
    assert reasons["c2"] == "I do not like it"
    assert reasons["c3"].startswith("the adapter raised SystemExit: 7")
    assert reasons["c4"] == "the adapter's foreign_header gave a NoneType, not a ForeignHeader"
    assert reasons["c5"] == "the adapter's key is str; it must be bytes"
    assert reasons["c6"] == "the adapter's event_time_ns is float, not int"
    assert reasons["c7"] == "the adapter's event_id is str, not bytes"
    assert reasons["c8"] == "the event time is out of range"
    assert reasons["c9"].startswith("the adapter's event_id is empty")
    assert site.clicks("joined") == rest(*reasons)


def test_while_no_key_is_known_there_is_no_verdict(tmp_path: Path) -> None:
    site = Site(tmp_path, "    def primary_key(self, record, file):\n        return 'text'\n")
    result = site.once()
    assert result.code == ATTENTION
    assert "the adapter's key is str; it must be bytes" in result.err
    assert site.clicks("unmatched") == set()
    # Once the adapter is right, the same output continues.
    (site.base / "mine.py").write_text(BASE.rstrip() + "\n")
    after = site.once()
    assert after.code == 0, after.err
    balanced(after, joined=QUERIES)


def test_what_hangs_is_broken_off_and_rejected_and_the_rest_goes_on(tmp_path: Path) -> None:
    site = Site(
        tmp_path,
        """
    def foreign_header(self, record, file):
        if orjson.loads(record)["click_id"] == "c1":
            while True:
                pass  # in a header
        return super().foreign_header(record, file)

    def primary_key(self, record, file):
        key = super().primary_key(record, file)
        while key == b"q2":
            pass
        return key

    def join(self, foreign, foreign_file, primary, primary_file):
        import re, time
        click = orjson.loads(foreign)["click_id"]
        if click == "c3":
            while True:
                pass  # in a loop
        if click == "c4":
            time.sleep(600)
        if click == "c5":
            re.match("(a+)+$", "a" * 64 + "b")
        return super().join(foreign, foreign_file, primary, primary_file)
""",
    )
    result = site.once("--set", "limits.adapter_timeout=200ms")
    assert result.code == ATTENTION, result.err
    balanced(result, joined=QUERIES - 5, rejected=4, pending=1)
    reasons = site.reasons()
    assert reasons.keys() == {"c1", "c3", "c4", "c5"}
    assert all(each.startswith("the adapter did not return within 0.2 s (") for each in reasons.values())
    assert site.line_of("time.sleep") in reasons["c4"]
    assert site.line_of("re.match") in reasons["c5"]
    assert site.clicks("unmatched") == set(), "the key of q2 is not known, so c2 waits"
    assert site.clicks("joined") == rest("c1", "c2", "c3", "c4", "c5")


def test_a_verdict_on_what_hung_is_the_same_after_a_restart(tmp_path: Path) -> None:
    """It is in the output under its id; nobody asks the adapter again, not even a fixed one."""
    source = """
    def join(self, foreign, foreign_file, primary, primary_file):
        while b'"c1"' in foreign:
            pass
        return super().join(foreign, foreign_file, primary, primary_file)
"""
    site = Site(tmp_path, source)
    assert site.once("--set", "limits.adapter_timeout=100ms").code == ATTENTION
    before = site.reasons()
    assert before.keys() == {"c1"}
    (tmp_path / "mine.py").write_text(BASE + "    pass\n")
    site.once()
    assert site.reasons() == before
    assert site.clicks("joined") == rest("c1")


def test_columns_that_join_other_pairs_end_the_run_in_one_line(tmp_path: Path) -> None:
    site = Site(
        tmp_path,
        """
    def join_columns(self, pairs):
        rows = super().join_columns(pairs).rows()
        return Payloads.of(rows[1:] + rows[:1])
""",
    )
    result = site.once()
    assert result.code == 1
    (said,) = [line for line in result.err.splitlines() if line.startswith("photon: ")]
    assert said.startswith("photon: Mine: join_columns gave Joined(")
    assert ", and Joined(" in said
    assert not site.clicks("joined")


def test_a_batch_that_raises_or_hangs_costs_only_the_event_to_blame(tmp_path: Path) -> None:
    site = Site(
        tmp_path,
        """
    def join_columns(self, pairs):
        for foreign in pairs.foreign:
            while b'"c2"' in foreign:
                pass
        return super().join_columns(pairs)

    def join(self, foreign, foreign_file, primary, primary_file):
        if b'"c1"' in foreign:
            raise KeyError("boom")
        while b'"c2"' in foreign:
            pass
        return super().join(foreign, foreign_file, primary, primary_file)
""",
    )
    result = site.once("--set", "limits.adapter_timeout=100ms")
    assert result.code == ATTENTION
    balanced(result, joined=QUERIES - 2, rejected=2)
    reasons = site.reasons()
    assert reasons["c1"].startswith("the adapter raised KeyError: 'boom' (")
    assert reasons["c2"].startswith("the adapter did not return within 0.1 s (")
    assert site.clicks("joined") == rest("c1", "c2")
