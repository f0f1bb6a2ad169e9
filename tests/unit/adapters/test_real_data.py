"""Real data sets, read as config/examples says; tests/integration/test_real_data.py compares the joined pairs."""

from __future__ import annotations

import gzip
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import ForeignHeader, LogFile
from photon.adapters.loader import load_adapter
from photon.adapters.logs.follower import Follower

EXAMPLES = Path(__file__).parents[3] / "config" / "examples"


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
        for record, header in zip(records, adapter.header_columns(records, file).rows(), strict=True):
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


def as_zeek_tsv(lines: list[bytes]) -> bytes:
    """The real JSON lines as Zeek's ASCII writer has them; a second header with other columns in the middle."""
    rows = [orjson.loads(line) for line in lines]
    raw = [dict(re.findall(rb'"(ts)":([0-9.]+)', line)) for line in lines]  # the digits as they are there
    out = []
    for at, (row, digits) in enumerate(zip(rows, raw, strict=True)):
        if at in (0, len(rows) // 2):
            names = sorted({name for each in rows for name in each}, reverse=at > 0)
            types = {n: "vector[string]" for each in rows for n, value in each.items() if isinstance(value, list)}
            kinds = [types.get(name, "time" if name == "ts" else "string") for name in names]
            out += [
                "#separator \\x09",
                "#set_separator\t,",
                "#empty_field\t(empty)",
                "#unset_field\t-",
                f"#open\t{at}",
            ]
            out += ["#fields\t" + "\t".join(names), "#types\t" + "\t".join(kinds)]
        out.append("\t".join(tsv_value(row.get(name), digits if name == "ts" else {}) for name in names))
    return "\n".join([*out, "#close\tx", ""]).encode()


def tsv_value(value: Any, digits: dict[bytes, bytes]) -> str:
    if value is None:
        return "-"
    if digits:
        return digits[b"ts"].decode()
    if isinstance(value, list):
        return ",".join(escaped(str(each)) for each in value) or "(empty)"
    return escaped(str(value)) or "(empty)"


def escaped(text: str) -> str:
    plain = {c for c in map(chr, range(32, 127)) if c not in "\\,-"}
    return "".join(c if c in plain else "".join(f"\\x{byte:02x}" for byte in c.encode()) for c in text)


def test_zeek_pairs_from_tsv_compressed_with_zstd_and_followed(tmp_path: Path) -> None:
    """The same pairs as from JSON: with headers in mid-file, some logs rolled and compressed."""
    root = data_set("net_zeek_apt29")
    side = {"format": "zeek", "key": "uid"}
    adapter = ConfiguredAdapter({"primary": side, "foreign": side})
    for name in ("primary", "foreign"):
        for at, path in enumerate(sorted((root / name).iterdir())):
            data = as_zeek_tsv(gzip.decompress(path.read_bytes()).splitlines())
            target = tmp_path / name / path.name.removesuffix(".gz")
            target.parent.mkdir(exist_ok=True)
            if at % 2:
                target.with_name(target.name + ".zst").write_bytes(zstandard.ZstdCompressor().compress(data))
            else:
                target.write_bytes(data)

    def followed(name: str) -> list[tuple[str, bytes, int]]:
        """(file and line of the original, key, time)."""
        follower = Follower(tmp_path / name, has_header=False, framing=adapter.primary_framing)
        follower.scan()
        found = []
        numbers: dict[str, int] = {}
        while blocks := follower.poll(1 << 20, final=True):
            for block in blocks:
                keys = adapter.primary_keys(block.data, block.file)
                records = block.data.split(b"\n")[:-1]
                headers = adapter.header_columns(records, block.file).rows()
                for key, header, record in zip(keys, headers, records, strict=True):
                    assert isinstance(header, ForeignHeader), header
                    assert key == header.key
                    assert adapter.primary_payload(record, block.file) is not None
                    original = block.file.path.removesuffix(".zst") + ".gz"
                    numbers[original] = numbers.get(original, 0) + 1
                    found.append((f"{name}/{original}:{numbers[original]}", header.key, header.event_time_ns))
        assert not follower.problems
        follower.close()
        return found

    primaries = {key: place for place, key, _ in followed("primary")}
    foreign = followed("foreign")
    pairs = [f"{place}\t{key.decode()}\t{primaries.get(key, '-')}" for place, key, _ in foreign]
    with gzip.open(root / "expected" / "pairs.tsv.gz", "rt") as expected:
        assert sorted(pairs) == sorted(expected.read().splitlines())
    times = {place: time_ns for place, _, time_ns in foreign}
    as_json = {**side, "format": "zeek-json"}
    json_adapter = ConfiguredAdapter({"primary": as_json, "foreign": as_json})
    for path in sorted((root / "foreign").iterdir()):
        file, data, _ = read(path, root, False)
        for number, header in enumerate(json_adapter.header_columns(records_of(data), file).rows(), 1):
            assert isinstance(header, ForeignHeader)
            assert header.event_time_ns == times[f"foreign/{path.name}:{number}"]
