"""Files that a user-defined framing cuts into records."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.adapters.contract import AdapterError, Cut, Framing, binary_line
from photon.adapters.logs import forward, own_framing
from photon.adapters.logs.own_framing import OwnSource
from photon.adapters.logs.reader import open_source
from photon.adapters.testkit import Samples
from photon.adapters.testkit.checks import check_framing
from tests.unit.adapters.framings import Prefixed, prefixed
from tests.unit.adapters.logs.tails import Tail

RECORDS = [b"record %d %s" % (n, b"x" * (n % 40)) for n in range(500)]
TEXT = b"".join(each + (b"\r" if n % 7 == 6 else b"") + b"\n" for n, each in enumerate(RECORDS))


class Answer(Framing):
    """Returns the contents of ``given``, set by a test."""

    given: object = None

    def cut(self, data: bytes, state: bytes) -> Any:
        return type(self).given


def opened(path: Path, framing: Framing | None = None) -> OwnSource:
    return OwnSource(open_source(path), framing or Prefixed())


def test_a_name_that_no_framing_has_is_refused() -> None:
    with pytest.raises(AdapterError, match=r"'avro' is not a framing; write one of lines, .* that defines cut"):
        Framing("avro")
    assert Prefixed().forward
    assert not Prefixed().splittable
    assert pickle.loads(pickle.dumps(Prefixed())) == Prefixed()
    assert b"\n" not in binary_line(b"a\nb\n")[:-1]


@given(
    step=st.integers(1, 400), reads=st.lists(st.tuples(st.integers(0, len(TEXT)), st.integers(1, 3000)), max_size=9)
)
def test_any_place_can_be_read_in_any_order(tmp_path_factory: pytest.TempPathFactory, step: int, reads: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.gz"
    if not path.exists():
        path.write_bytes(gzip.compress(prefixed(RECORDS)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own_framing, "READ_BYTES", step)
        patch.setattr(forward, "MARK_SPACING_BYTES", 500)
        source = opened(path)
        for offset, length in reads:
            assert source.read(offset, length) == TEXT[offset : offset + length]
        assert source.read(0, len(TEXT) + 1) == TEXT
        assert (source.damage(), source.cut_short()) == ("", False)
        source.close()


def test_reading_back_begins_at_a_remembered_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_framing, "READ_BYTES", 100)
    monkeypatch.setattr(forward, "MARK_SPACING_BYTES", 500)
    (tmp_path / "a").write_bytes(prefixed(RECORDS))
    source = opened(tmp_path / "a")
    source.read(len(TEXT) - 10, 10)
    source.read(len(TEXT) // 2, 10)
    assert len(TEXT) // 2 - 700 < source._marks.before(len(TEXT) // 2)[0] <= source._start == len(TEXT) // 2
    source.close()


def test_a_record_that_is_not_whole_waits(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(prefixed([b"one", b"two"])[:-1])
    tail = Tail(tmp_path, framing=Prefixed())
    assert tail.read() == [b"one"]
    with path.open("ab") as file:
        file.write(b"o" + prefixed([b"three"]))
    assert tail.read() == [b"two", b"three"]
    assert not tail.problems


def test_an_exception_ends_the_log_behind_the_records_before_it(tmp_path: Path) -> None:
    good = prefixed(RECORDS[:20])
    (tmp_path / "a").write_bytes(good + b"\xff" + b"x" * 300)
    tail = Tail(tmp_path, framing=Prefixed())
    assert [each.removesuffix(b"\r") for each in tail.read()] == RECORDS[:20]
    (problem,) = {str(each) for each in tail.problems}
    assert "Prefixed.cut failed (ValueError: no record is that long), at byte " in problem


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "gave no Cut"),
        (Cut("text", 1), "gave no Cut"),  # type: ignore[arg-type]
        (Cut(b"a\n", 0), "used 0 of 1 bytes for 2 bytes of text"),
        (Cut(b"", 2), "used 2 of 1 bytes"),
        (Cut(b"a\n", 1, bytes(70_000)), "a state of 70000 bytes, more than 65536"),
    ],
)
def test_an_answer_that_is_none_is_named(tmp_path: Path, monkeypatch: Any, given: object, said: str) -> None:
    monkeypatch.setattr(Answer, "given", given)
    (tmp_path / "a").write_bytes(b"a")
    source = opened(tmp_path / "a", Answer())
    assert source.read(0, 10) == b""
    assert said in source.damage()
    source.close()


def test_an_exception_without_a_text_is_told(tmp_path: Path) -> None:
    class Raising(Framing):
        def cut(self, data: bytes, state: bytes) -> Cut:
            raise Unprintable

    (tmp_path / "a").write_bytes(b"abc")
    source = opened(tmp_path / "a", Raising())
    assert source.read(0, 10) == b""
    assert "Unprintable" in source.damage()
    source.close()


class Remembers(Prefixed):
    """Ends a line with the size of its input."""

    def cut(self, data: bytes, state: bytes) -> Cut:
        made = super().cut(data, state)
        return made._replace(text=made.text.replace(b"\n", b" of %d\n" % len(data)))


def test_the_test_kit_cuts_the_bytes_at_every_position() -> None:
    class Stub:
        primary_framing: Framing = Prefixed()
        primary_has_header = False

    given_ = Samples(begins=[("primary", "a.bin", prefixed(RECORDS[:60]))])
    assert check_framing(Stub(), given_) == []  # type: ignore[arg-type]
    Stub.primary_framing = Remembers()
    (found,) = check_framing(Stub(), given_)  # type: ignore[arg-type]
    assert found.startswith("a.bin: cut at byte 10, record 1 is b'record 0  of 10'; at once it is ")
