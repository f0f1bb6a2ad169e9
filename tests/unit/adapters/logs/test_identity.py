"""The log to which a file belongs, from its name and first bytes alone."""

from __future__ import annotations

import pytest

from photon.adapters.logs.identity import BOM, HEAD_BYTES, IDENTITY_BYTES, Head, log_name, read_head


@pytest.mark.parametrize(
    "rolled",
    [
        "web/app.log", "web/app.log.1", "web/app.log.12.gz", "web/app.log.gz", "web/app.log.1.zst",
        "web/app.log.zstd", "web/app.log-20240131",
        "web/app.log-20240131.gz", "web/app.log.2024-01-31", "web/app.log.2024-01-31-13.gz",
        "web/app.log-20240131-1530", "web/app.log.2024-01-31.3.gz", "web/app.log.2024-01-31T13:30:00",
    ],
)  # fmt: skip
def test_rotation_suffixes_do_not_belong_to_the_name(rolled: str) -> None:
    assert log_name(rolled) == "web/app.log"


@pytest.mark.parametrize("name", ["update.0930.csv", "app", "20240101", "a/1.2.3.4/b.log", ".1", "x.json", "v2.log"])
def test_other_names_stay(name: str) -> None:
    assert log_name(name) == name


def test_names_and_first_records_tell_logs_apart() -> None:
    logs = [("a", b"one\n"), ("b", b"one\n"), ("a", b"two\n"), ("d/a", b"one\n")]
    ids = {headed(name, data).identity for name, data in logs}
    assert len(ids) == 4
    assert all(len(i) == 32 for i in ids)


def headed(name: str, data: bytes, *, has_header: bool = False, final: bool = False) -> Head:
    head = read_head(name, data, has_header=has_header, final=final)
    assert head is not None
    return head


def test_no_identity_before_the_first_record_is_complete() -> None:
    for data, has_header, final in ((b"on", False, False), (b"h\non", True, False), (b"h\n", True, True)):
        assert read_head("a", data, has_header=has_header, final=final) is None
    assert headed("a", b"one", final=True).identity == headed("a", b"one\r\ntwo\n").identity


def test_files_that_share_a_long_header_differ_by_their_first_record() -> None:
    header = b",".join(b"column%d" % i for i in range(900))
    one = headed("x.csv", header + b"\r\n1,2\n", has_header=True)
    two = headed("x.csv", header + b"\r\n1,3\n", has_header=True)
    assert one.identity != two.identity
    assert (one.header, one.data_start) == (header, len(header) + 2)
    assert not one.same_record(two)


def test_byte_order_mark_is_not_data() -> None:
    head = headed("x.csv", BOM + b"h1\n\r\n\nv\n", has_header=True)
    assert (head.header, head.data_start, head.fingerprint) == (b"h1", 6, b"v\n")
    assert headed("x.csv", b"v\n").identity == head.identity  # blank lines do not count


def test_of_a_very_long_first_record_the_begin_decides_at_once() -> None:
    data = b"x" * (IDENTITY_BYTES + 2)
    assert headed("a", data).identity == headed("a", (data * 9)[:HEAD_BYTES]).identity
