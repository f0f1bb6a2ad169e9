"""The three real data sets, read as config/examples says, joined in a plain dict: exactly the expected pairs."""

from __future__ import annotations

import gzip
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter, ForeignHeader, LogFile
from photon.adapters.loader import load_adapter

EXAMPLES = Path(__file__).parents[3] / "config" / "examples"
SETS = [("net_zeek_apt29", "zeek"), ("ads_olist_funnel", "olist"), ("ob_lobster_aapl", "lobster")]


def tables_of(example: str) -> dict[str, Any]:
    with (EXAMPLES / f"{example}.toml").open("rb") as file:
        ((name, tables),) = tomllib.load(file)["join"].items()
    return {"where": f"join.{name}", **tables}


def data_set(name: str) -> Path:
    root = os.environ.get("PHOTON_TEST_DATA")
    if not root:
        pytest.skip("PHOTON_TEST_DATA is not set")
    return Path(root) / name


def read(path: Path, root: Path, has_header: bool) -> tuple[LogFile, bytes, int]:
    """(the file, its data without the header, number of the first data line)."""
    with gzip.open(path) as file:
        data = file.read()
    if not data.endswith(b"\n"):
        data += b"\n"
    header = b""
    if has_header:
        header, _, data = data.partition(b"\n")
    return LogFile(str(path.relative_to(root)), header.removesuffix(b"\r")), data, 2 if has_header else 1


def records_of(data: bytes) -> list[bytes]:
    return [line.removesuffix(b"\r") for line in data.split(b"\n")[:-1]]


@pytest.mark.parametrize("example", ["zeek", "olist", "lobster", "access_log"])
def test_examples_are_valid(example: str) -> None:
    assert load_adapter("configured", tables_of(example), Path()).rule()


@pytest.mark.parametrize(("folder", "example"), SETS)
def test_pairs_are_the_expected_ones(folder: str, example: str) -> None:
    root = data_set(folder)
    adapter = ConfiguredAdapter(tables_of(example))
    primaries: dict[bytes, str] = {}
    for path in sorted((root / "primary").iterdir()):
        file, data, first = read(path, root, adapter.primary_has_header)
        keys = adapter.primary_keys(data, file)
        assert keys == Adapter.primary_keys(adapter, data, file)
        for number, key in enumerate(keys, first):
            assert key is not None
            primaries.setdefault(key, f"{file.path}:{number}")
    pairs = []
    for path in sorted((root / "foreign").iterdir()):
        file, data, first = read(path, root, adapter.foreign_has_header)
        for number, header in enumerate(adapter.foreign_headers(records_of(data), file), first):
            assert isinstance(header, ForeignHeader), header
            pairs.append(f"{file.path}:{number}\t{header.key.decode()}\t{primaries.get(header.key, '-')}")
    with gzip.open(root / "expected" / "pairs.tsv.gz", "rt") as expected:
        assert sorted(pairs) == sorted(expected.read().splitlines())


def test_zeek_times_keep_every_digit() -> None:
    root = data_set("net_zeek_apt29")
    adapter = ConfiguredAdapter(tables_of("zeek"))
    file, data, _ = read(root / "foreign" / "day2_UTICA-A_dce_rpc.log.gz", root, False)
    first = adapter.foreign_header(records_of(data)[0], file)
    assert first.event_time_ns == 1_588_316_991_317_643_900


def test_lobster_times_are_new_york_nanoseconds() -> None:
    root = data_set("ob_lobster_aapl")
    adapter = ConfiguredAdapter(tables_of("lobster"))
    seen = 0
    for path in sorted((root / "foreign").iterdir()):
        file, data, _ = read(path, root, False)
        records = records_of(data)
        times = []
        for record, header in zip(records, adapter.foreign_headers(records, file), strict=True):
            assert isinstance(header, ForeignHeader)
            whole, fraction = record.split(b",", 1)[0].split(b".")
            # Midnight in New York was 04:00 UTC on that summer day.
            assert header.event_time_ns == (1_340_251_200 + int(whole)) * 10**9 + int(fraction.ljust(9, b"0")[:9])
            times.append(header.event_time_ns)
            seen += len(fraction) != 9
        assert times == sorted(times)
    assert seen > 3000  # shorter and longer fractions were among them


def test_olist_payload_is_an_object_of_strings() -> None:
    root = data_set("ads_olist_funnel")
    adapter = ConfiguredAdapter(tables_of("olist"))
    file, data, _ = read(root / "foreign" / "olist_closed_deals_dataset.csv.gz", root, True)
    quoted = next(record for record in records_of(data) if b'"cat, wolf"' in record)
    payload = adapter.foreign_payload(quoted, file)
    assert payload is not None
    assert b'"lead_behaviour_profile":"cat, wolf"' in payload


def test_access_log_lines() -> None:
    adapter = ConfiguredAdapter(tables_of("access_log"))
    line = (
        b'192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET /click?q=10.0.0.1:7:971211300000000&pos=3 HTTP/1.1" 302 154'
        b' "https://example.org/" "Mozilla/5.0"'
    )
    header = adapter.foreign_header(line, LogFile("access.log"))
    assert header == ForeignHeader(b"10.0.0.1:7:971211300000000", 971_211_336 * 10**9)
