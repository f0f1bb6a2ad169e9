"""Keys that several primary records share: the winning record, whether they differ, and the cost of finding out."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.adapters.contract import LogFile
from photon.config.errors import UsageError
from photon.eventstore import shared_keys
from photon.eventstore.api import LookUpCode, PrimaryPlace, PrimaryRecord
from photon.eventstore.file_map import PLACES_PER_KEY_MAX, MapKind
from photon.eventstore.shared_keys import SharedKeys, check_rule
from tests.unit.eventstore.helpers import Filled, Store

A = LogFile("a.log")
CACHED = pytest.mark.parametrize("cache_bytes", [1, 1 << 20])


def ask(store: Store, key: bytes) -> tuple[LookUpCode, bytes, PrimaryPlace | None]:
    found = store.tiers.look_up([b"nobody", key], [0, 0])
    assert found.ambiguous.keys() <= {1}
    record = found.records[1]
    return found.answers[1], b"" if record is None else record.record, found.ambiguous.get(1)


@CACHED
@pytest.mark.parametrize(
    ("rule", "wins", "other"), [("first", b"k,1", 4), ("last", b"k,2", 0), ("reject", b"k,1", 4)]
)
def test_records_that_differ_are_noticed_and_the_rule_says_which_wins(
    filled: Filled, cache_bytes: int, rule: str, wins: bytes, other: int
) -> None:
    store = filled({"a.log": b"k,1\nk,2\nj,1\n"}, cache_bytes=cache_bytes, duplicates=rule)
    assert ask(store, b"j") == (LookUpCode.FOUND, b"j,1", None)
    places = store.reads.counts().places
    for _ in range(3):
        assert ask(store, b"k") == (LookUpCode.FOUND, wins, PrimaryPlace(A, other))
    repeated = store.reads.counts().places - places
    assert repeated == (2 if cache_bytes > 1 else 6), "compared once; then only what is not cached is read"
    assert store.shared.ambiguous == 1
    (line,) = store.told
    assert "'k' is in a.log, offset" in line
    assert shared_keys.DOES[rule] in line


@CACHED
def test_a_record_that_was_sent_again_is_the_same_event(filled: Filled, cache_bytes: int) -> None:
    store = filled(
        {"a.log": b"k,1\nj,1\nk,1\r\n", "b.log": b"x,1\nk,1\n"}, cache_bytes=cache_bytes, duplicates="reject"
    )
    assert ask(store, b"k")[::2] == (LookUpCode.FOUND, None)
    store.write("b.log", b"k,2\n")  # and one that is another
    store.read_all()
    assert ask(store, b"k")[2] == PrimaryPlace(LogFile("b.log"), 8)
    assert (store.shared.ambiguous, len(store.told)) == (1, 1)


@pytest.mark.parametrize(
    ("rule", "answer"),
    [("first", LookUpCode.FOUND), ("reject", LookUpCode.UNAVAILABLE), ("last", LookUpCode.UNAVAILABLE)],
)
def test_while_a_record_cannot_be_compared(filled: Filled, rule: str, answer: LookUpCode) -> None:
    """The first one wins regardless of the others; the other rules wait for the log."""
    store = filled({"a.log": b"k,1\n", "b.log": b"j,1\nk,2\n"}, cache_bytes=1, duplicates=rule)
    kept = (store.logs / "b.log").read_bytes()
    (store.logs / "b.log").unlink()
    store.read_all()
    assert ask(store, b"k")[::2] == (answer, None)
    store.write("b.log", kept)
    store.read_all()
    assert ask(store, b"k")[0] is LookUpCode.FOUND
    assert ask(store, b"k")[2] is not None, "it is compared as soon as it can be"


def test_the_last_of_very_many_is_the_last(tmp_path: Path) -> None:
    lines = [b"k,%d\n" % n for n in range(3 * PLACES_PER_KEY_MAX)]
    for rule, wins in (("first", lines[0]), ("last", lines[-1])):
        base = tmp_path / rule
        base.mkdir()
        store = Store(base, cache_bytes=1, duplicates=rule)
        for at in range(0, len(lines), 7):
            store.write("a.log", b"".join(lines[at : at + 7]))
            store.read_all()
            assert ask(store, b"k")[1] + b"\n" == (wins if rule == "first" else lines[min(at + 6, len(lines) - 1)])
        store.close()


def test_after_a_restart_it_is_found_out_again(filled: Filled) -> None:
    for _ in range(2):
        store = filled()
        if not (store.logs / "a.log").exists():
            store.write("a.log", b"k,1\nk,2\n")
        store.read_all()
        store.reader.commit()
        assert ask(store, b"k") == (LookUpCode.FOUND, b"k,1", PrimaryPlace(A, 4))
        store.close()


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_keys, "KEYS_MAX", 3)
    shared = SharedKeys("first", lambda line: None)
    one, two = PrimaryRecord(b"1", A, 0), PrimaryRecord(b"2", A, 7)
    for key in (b"a", b"b", b"c", b"d"):
        assert shared.judge(key, one, [one, two], 2) == PrimaryPlace(A, 7)
    assert shared.known(b"a", 2) is None
    assert shared.known(b"d", 2) == (2, PrimaryPlace(A, 7))
    assert shared.known(b"d", 3) is None
    assert shared.ambiguous == 4
    shared.judge(b"d", one, [one, two, two], 3)
    shared.judge(b"d", one, [one, two, two], None)
    assert shared.ambiguous == 4, "a key counts once"


@pytest.mark.parametrize(
    ("rule", "kind", "hbase", "wrong"),
    [
        ("first", MapKind.SPARSE, True, None),
        ("reject", MapKind.SPARSE, True, None),
        ("last", MapKind.DENSE, False, None),
        ("last", MapKind.SPARSE, False, 'file_map = "sparse"'),
        ("last", MapKind.DENSE, True, "a file map in HBase"),
        ("newest", MapKind.DENSE, False, "write one of first, last, reject"),
    ],
)
def test_what_cannot_be_kept_is_refused(rule: str, kind: MapKind, hbase: bool, wrong: str | None) -> None:
    if wrong is None:
        check_rule(rule, kind, hbase=hbase)
        return
    with pytest.raises(UsageError, match=wrong):
        check_rule(rule, kind, hbase=hbase)
