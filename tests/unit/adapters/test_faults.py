"""Messages about an adapter that raises."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.adapters.contract import BadRecord, LogFile
from photon.adapters.faults import are_payloads, describe, payload_fault
from photon.adapters.loader import load_adapter

SOURCE = """
from photon.adapters.contract import Adapter, ForeignHeader
class Mine(Adapter):
    def foreign_header(self, record, file):
        import json
        return json.loads(record)
    def primary_key(self, record, file):
        raise SystemExit(record)
    def foreign_payload(self, record, file):
        return None
    primary_payload = foreign_payload
"""


def test_the_line_of_the_adapters_own_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SOURCE)
    adapter = load_adapter("mine.py:Mine", {}, tmp_path)
    with pytest.raises(ValueError, match="Expecting") as caught:
        adapter.foreign_header(b"{", LogFile("a"))
    said = describe(caught.value)
    assert said.startswith("the adapter raised JSONDecodeError: Expecting")
    assert said.endswith(f"({tmp_path}/mine.py:6)")
    with pytest.raises(SystemExit) as left:
        adapter.primary_key(b"2", LogFile("a"))
    assert describe(left.value) == f"the adapter raised SystemExit: b'2' ({tmp_path}/mine.py:8)"


def test_without_a_file_of_its_own_the_innermost_line_is_named() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        1 / 0  # noqa: B018
    assert describe(caught.value).endswith(f"({__file__}:{caught.tb.tb_lineno})")
    assert describe(KeyError("two\nlines")) == "the adapter raised KeyError: 'two\\nlines'"
    assert describe(ValueError("two\nlines")) == "the adapter raised ValueError: two lines"


def test_a_bad_records_reason_is_said_as_it_is() -> None:
    assert describe(BadRecord("no key")) == "no key"
    assert describe(BadRecord(17)) == "17"  # type: ignore[arg-type]


@pytest.mark.parametrize("payloads", [(), (None, None), (b"1",), (b'{"a":"\xc3\xbc"}', None, b"[1e999]", b'"\\n"')])
def test_payloads_are_checked_together(payloads: tuple[object, ...]) -> None:
    assert are_payloads(payloads)
    assert set(map(payload_fault, payloads)) <= {None}


@pytest.mark.parametrize(
    "payloads",
    [
        (b"[1", b"2]", b"3,4"),
        (b"[1", b"2]", b"3\n4"),
        (b"1 2",),
        (b'{"a":\n1}',),
        (b'{"a":\r1}',),
        (b"",),
        (b"1", b"", b"2\n3"),
        (b"NaN",),
        (b'"\xff"',),
        (bytearray(b"1"),),
        ("1",),
    ],
)
def test_payloads_that_hide_in_each_other_are_found(payloads: tuple[object, ...]) -> None:
    assert not are_payloads((b"0", None, *payloads, b"{}"))
    assert set(map(payload_fault, payloads)) != {None}
