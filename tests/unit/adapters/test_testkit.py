"""The testkit finds each breach of the contract, and nothing in an adapter that keeps it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import (
    Adapter,
    AdapterError,
    BadRecord,
    Filtered,
    ForeignHeader,
    Headers,
    Joined,
    LogFile,
    Pairs,
    Payloads,
)
from photon.adapters.testkit import AdapterTests, Samples, check_adapter, examine
from photon.adapters.testkit.checks import CHECKS, Speed, check_elsewhere, check_speed, speed_findings, speeds
from photon.adapters.testkit.samples import read_samples

PRIMARY = [b"k%d|text %d" % (n, n) for n in range(1, 9)]
FOREIGN = [b"e%d|k%d|%d" % (n, n, 1_700_000_000 + n) for n in range(1, 9)]
SAMPLES = Samples.of(primary=PRIMARY, foreign=FOREIGN)


class Good(Adapter):
    """``id|key|seconds`` joins ``key|text``."""

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        parts = record.split(b"|")
        if len(parts) != 3 or not parts[2].isdigit() or len(parts[2]) > 10 or not parts[0] or not parts[1]:
            raise BadRecord("not id|key|seconds")
        return ForeignHeader(parts[1], int(parts[2]) * 10**9, parts[0])

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        key, bar, _ = record.partition(b"|")
        if not bar or not key:
            raise BadRecord("not key|text")
        return key

    def foreign_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return None

    primary_payload = foreign_payload


class Counting(Good):
    """Remembers how often it was called."""

    asked = 0

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        type(self).asked += 1
        header = super().foreign_header(record, file)
        return header._replace(event_id=b"%d" % self.asked)


class InOrder(Good):
    """Remembers the last record it saw, and so depends on the order."""

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        key = super().primary_key(record, file)
        previous, self._last = getattr(self, "_last", key), key
        return key if previous <= key else previous


class Hashing(Good):
    """Uses something that differs between processes."""

    def foreign_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return b"%d" % hash(record)


class LocalTime(Good):
    """Uses the time zone of its process."""

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        header = super().foreign_header(record, file)
        return header._replace(event_time_ns=int(time.mktime(time.gmtime(header.event_time_ns // 10**9))))


class Writing(Good):
    """Changes its input."""

    def header_columns(self, records: Sequence[bytes], file: LogFile) -> Headers:
        self.options["seen"] = len(records)
        found = super().header_columns(records, file)
        if isinstance(records, list):
            records.clear()
        return found


class OtherBatches(Good):
    """Its keys of many records differ from those of each."""

    def primary_keys(self, block: bytes, file: LogFile) -> list[bytes | None]:
        return [line[:1] for line in block.split(b"\n")[:-1]]


class OtherColumns(Good):
    """Its headers in columns differ from those of each record."""

    def header_columns(self, records: Sequence[bytes], file: LogFile) -> Headers:
        return super().header_columns(records, file)._replace(keys=[b"k"] * len(records))


class Short(Good):
    """Leaves bad records out of its answers."""

    def header_columns(self, records: Sequence[bytes], file: LogFile) -> Headers:
        found = super().header_columns(records, file).rows()
        return Headers.of([each for each in found if isinstance(each, ForeignHeader)])


class Raising(Good):
    """Lets every exception out."""

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        event_id, key, seconds = record.split(b"|")
        return ForeignHeader(key, int(seconds) * 10**9, event_id)


class Inventing(Good):
    """Finds a header everywhere."""

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        try:
            return super().foreign_header(record, file)
        except BadRecord:
            return ForeignHeader(b"k", 0)


class Rubbish(Good):
    """Joins to something that cannot be written."""

    def join(self, foreign: bytes, foreign_file: LogFile, primary: bytes, primary_file: LogFile) -> Joined | Filtered:
        return Joined(b"no json", b"{}")


class OtherPairs(Good):
    """Joins many differently from each."""

    def join_columns(self, pairs: Pairs) -> Payloads:
        return Payloads([b"1"] * len(pairs.foreign), [b"2"] * len(pairs.foreign), {})


class Endless(Good):
    """Never returns from an empty record."""

    time_limit_s = 0.1

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        while not record:
            pass
        return super().primary_key(record, file)


class OldContract(Good):
    api_version = 0


FAULTY = [
    (Counting, "deterministic"), (InOrder, "deterministic"), (Hashing, "elsewhere"), (LocalTime, "elsewhere"),
    (Writing, "untouched"), (OtherBatches, "batches"), (OtherColumns, "batches"),
    (Short, "bad lines"), (Raising, "bad lines"),
    (Inventing, "bad lines"), (OtherPairs, "batches"), (Endless, "bad lines"), (Rubbish, "readable"),
    (OldContract, "version"),
]  # fmt: skip


@pytest.mark.parametrize(("cls", "check"), FAULTY)
def test_each_breach_is_found(cls: type[Adapter], check: str) -> None:
    found = CHECKS[check](cls({}), SAMPLES)
    assert found
    assert all("\n" not in line for line in found)


def test_a_raise_is_told_with_its_line_and_what_to_do() -> None:
    found = CHECKS["bad lines"](Raising({}), SAMPLES)
    assert any("test_testkit.py:" in line and "raise BadRecord(reason) instead" in line for line in found)


def test_an_adapter_that_keeps_the_contract_passes() -> None:
    report = check_adapter(Good({}), SAMPLES)
    assert report.kept
    assert str(report) == "the contract is kept"
    assert {each.method for each in report.speeds} == {"primary_keys", "header_columns", "join"}
    assert report.findings.keys() == {*CHECKS, "speed"}


def test_check_adapter_fails_with_every_finding() -> None:
    with pytest.raises(AssertionError, match=r"readable: .*the adapter's payload is not JSON"):
        check_adapter(Rubbish({}), SAMPLES)


def test_what_cannot_be_made_elsewhere_is_said() -> None:
    class Local(Good):
        pass

    (found,) = check_elsewhere(Local({}), SAMPLES)
    assert "another process" in found
    (found,) = check_elsewhere(Good({"odd": object()}), SAMPLES)
    assert "are not plain values" in found


def test_the_speed_has_a_bound() -> None:
    ticks = iter(range(0, 10_000, 100))
    measured = speeds(Good({}), SAMPLES, lambda: float(next(ticks)))
    assert [each.per_s for each in measured] == [20.0, 20.0, 20.0]
    assert len(speed_findings(measured)) == 3
    assert speed_findings([Speed("join", 1e6)]) == []
    assert check_speed(Good({}), SAMPLES) == []


CSV = {
    "primary": {"format": "csv", "key": "k", "multiline": True},
    "foreign": {
        "format": "logfmt", "key": "k", "id": "id", "time": {"field": "ts", "unit": "s"},
    },
}  # fmt: skip


def test_configured_sides_keep_the_contract(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_bytes(b'k,text\nk1,"two\nlines"\nk2,one\n')
    (tmp_path / "f.log").write_bytes(b"id=e1 k=k1 ts=1700000000\nid=e2 k=k2 ts=1700000001\n")
    adapter = ConfiguredAdapter(CSV)
    samples = Samples.read(adapter, primary=tmp_path / "p.csv", foreign=tmp_path / "f.log")
    assert [each.line for each in samples.primary] == [2, 4]
    assert str(examine(adapter, samples)) == "the contract is kept"


def test_samples_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="no such file"):
        Samples.read(Good({}), primary=tmp_path / "none.log")
    (tmp_path / "empty.log").write_bytes(b"")
    with pytest.raises(AdapterError, match="holds no record"):
        Samples.read(Good({}), foreign=tmp_path / "empty.log")


def test_faults_that_differ_in_numbers_are_one_finding() -> None:
    class Decoding(Good):
        def primary_payload(self, record: bytes, file: LogFile) -> bytes | None:
            return b'"%d"' % len(record.decode())

    found = [line for line in CHECKS["bad lines"](Decoding({}), SAMPLES) if "invalid start byte" in line]
    assert len(found) == 1
    assert "more)" in found[0]


def test_the_part_of_a_header_that_differs_is_named() -> None:
    found = CHECKS["elsewhere"](LocalTime({}), SAMPLES)
    assert "foreign_header.event_time_ns gave " in found[0]
    assert "which zone the logs mean" in found[-1]


def test_a_directory_gives_the_records_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"k1|x\nk2|y\n")
    (tmp_path / "b.log").write_bytes(b"k3|x\nk4|y\n")
    (tmp_path / ".hidden").write_bytes(b"\x00")
    samples = Samples.read(Good({}), primary=tmp_path, limit=3)
    assert [(each.file.path, each.line) for each in samples.primary] == [("a.log", 1), ("a.log", 2), ("b.log", 1)]
    with pytest.raises(AdapterError, match=r"is a directory; name one file in it, for instance .*a\.log"):
        read_samples(Good({}), "primary", tmp_path)


USERS_TESTS = """
from pathlib import Path
from photon.adapters.testkit import AdapterTests
from tests.unit.adapters.test_testkit import Raising

class TestMine(AdapterTests):
    adapter_class = Raising
    primary = Path(__file__).parent / "primary"
    foreign = Path(__file__).parent / "none.log"

class TestRaising(TestMine):
    foreign = Path(__file__).parent / "foreign.log"
"""


def test_what_a_users_failing_tests_print(tmp_path: Path) -> None:
    """Each finding, and no more of our frames than the line that asked."""
    (tmp_path / "test_mine.py").write_text(USERS_TESTS)
    (tmp_path / "primary").mkdir()
    (tmp_path / "primary" / "a.log").write_bytes(b"\n".join(PRIMARY) + b"\n")
    (tmp_path / "foreign.log").write_bytes(b"\n".join(FOREIGN) + b"\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", "bad_lines", tmp_path],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout
    assert (
        "none.log: no such file; name one file of the foreign logs; it is named by TestMine.primary or" in done.stdout
    )
    assert "- foreign foreign_header: the adapter raised ValueError: " in done.stdout
    assert "raise BadRecord(reason) instead (record b'' and " in done.stdout
    assert "def read_samples" not in done.stdout


class TestGood(AdapterTests):
    """The tests from which users derive theirs."""

    adapter_class = Good

    def samples(self) -> Samples:
        return SAMPLES
