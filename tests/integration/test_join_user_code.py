"""An adapter's bugs in ``photon join``: each costs its own record, all others are joined, and the exit code tells."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from photon.adapters.crumbs import CLOSED
from photon.supervision.supervisor import STOP_S
from tests.integration.commands import photon

RECORDS = 60
ADAPTER = """
import json, os, signal, threading, time
from photon.adapters.contract import Adapter, ForeignHeader, Headers, Retry

class NoText(Exception):
    def __str__(self):
        raise ValueError
class Own(BaseException):
    pass
TRIED = set()

def act(place, record):
    kind = json.loads(record).get(place)
    if kind == "own":
        raise Own
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "no text":
        raise NoText
    if kind == "type":
        return "text"
    if kind == "signal":
        signal.raise_signal(signal.SIGSEGV)  # to this thread, as a real one: with another one it would go on
    if kind == "exit":
        os._exit(0)
    if kind == "close":
        os.closerange(3, 256)
    if kind == "fork":
        os.fork()
    if kind == "thread":
        threading.Thread(target=time.sleep, args=(600,)).start()
    if kind == "retry" and place not in TRIED:
        TRIED.add(place)
        raise Retry("away")
    return None

class Buggy(Adapter):
    def foreign_header(self, record, file):
        found = json.loads(record)
        return act("header", record) or ForeignHeader(found["q"].encode(), found["t"] * 10**9, found["c"].encode())
    def primary_key(self, record, file):
        return act("key", record) or json.loads(record)["q"].encode()
    def join(self, foreign, foreign_file, primary, primary_file):
        return act("join", foreign) or super().join(foreign, foreign_file, primary, primary_file)
    def foreign_payload(self, record, file):
        return record
    primary_payload = foreign_payload

class Reverses(Buggy):
    def header_columns(self, records, file):
        records.reverse()
        return Headers.of([self.foreign_header(each, file) for each in records])
"""
CONFIG = '[join.j]\nadapter = "{code}:{name}"\nunmatched_after = "1h"\n'


def logs(base: Path, foreign: Sequence[dict[str, str]] = (), primary: Sequence[dict[str, str]] = ()) -> None:
    """The first records have these additional fields."""
    for side, more in (("p", primary), ("f", foreign)):
        (base / side).mkdir()
        with (base / side / "a.log").open("w") as log:
            for at in range(RECORDS):
                own = {"q": f"q{at}"} if side == "p" else {"q": f"q{at}", "c": f"c{at}", "t": 1709280000 + at}
                log.write(json.dumps(own | (more[at] if at < len(more) else {})) + "\n")


def joined(
    base: Path, name: str = "Buggy", *more: str, code: str = "buggy.py"
) -> tuple[int, str, list[int], list[str]]:
    """Exit code, standard error, joined records (with their own fields), and reasons of rejected ones."""
    (base / "buggy.py").write_text(ADAPTER)
    (base / "photon.toml").write_text(CONFIG.format(code=code, name=name))
    done = photon(
        "join", "--config", base / "photon.toml", "--primary", base / "p", "--foreign", base / "f",
        "--output", base / "out", "--once", "--quiet", *more,
    )  # fmt: skip
    pairs = [
        json.loads(line) for file in (base / "out" / "joined").glob("*") for line in file.read_text().splitlines()
    ]
    assert all(each["foreign"]["q"] == each["primary"]["q"] for each in pairs)
    assert all(each["event_id"] == each["foreign"]["c"] for each in pairs)
    rejected = [
        json.loads(line)["reason"]
        for file in (base / "out" / "rejected").glob("*")
        for line in file.read_text().splitlines()
    ]
    return done.code, done.err, sorted(int(each["event_id"][1:]) for each in pairs), sorted(rejected)


def test_what_an_adapter_raises_costs_its_record(tmp_path: Path) -> None:
    kinds = ("own", "interrupt", "no text", "type")
    logs(tmp_path, foreign=[{place: kind} for place in ("header", "join") for kind in kinds])
    code, said, pairs, rejected = joined(tmp_path)
    assert code == 3, said
    assert pairs == list(range(2 * len(kinds), RECORDS))
    assert len(rejected) == 2 * len(kinds)
    assert [why for why in rejected if "which cannot be printed" in why] != []


@pytest.mark.parametrize("place", ["header", "join"])
def test_a_record_that_kills_the_process_is_set_aside(tmp_path: Path, place: str) -> None:
    logs(tmp_path, foreign=[{place: kind} for kind in ("exit", "signal", "close")])
    code, said, pairs, rejected = joined(tmp_path)
    assert code == 3, said
    assert pairs == list(range(3, RECORDS))
    *others, closed = rejected
    assert others == ["crashed: exit 0", "crashed: signal 11"]
    assert closed in (f"crashed: {CLOSED}", "crashed: signal 6")  # an event loop of another thread may find it first


@pytest.mark.parametrize("kind", ["own", "type", "signal", "close"])
def test_while_a_primary_key_is_not_known_its_events_wait(tmp_path: Path, kind: str) -> None:
    logs(tmp_path, primary=[{}, {"key": kind}])
    code, said, pairs, rejected = joined(tmp_path)
    assert code == 3, said
    assert pairs == [0, *range(2, RECORDS)]
    assert rejected == []
    assert not list((tmp_path / "out" / "unmatched").glob("*"))
    assert "primary log a.log: offset 12: " in said
    code, said, pairs, _ = joined(tmp_path)  # nothing has changed
    assert (code, pairs) == (3, [0, *range(2, RECORDS)])


def test_what_is_to_be_tried_again_costs_nothing(tmp_path: Path) -> None:
    late = [{}] * (RECORDS - 1)  # not among the records examined before anything is joined
    logs(tmp_path, foreign=[{"join": "retry"}, *late[1:], {"header": "retry"}], primary=[{"key": "retry"}])
    code, said, pairs, rejected = joined(tmp_path)
    assert (code, pairs, rejected) == (0, list(range(RECORDS)), []), said


def test_threads_and_copies_do_not_keep_the_command(tmp_path: Path) -> None:
    logs(tmp_path, foreign=[{"header": "thread"}, {"join": "fork"}], primary=[{"key": "thread"}])
    began = time.monotonic()
    code, said, pairs, rejected = joined(tmp_path)
    assert (code, pairs, rejected) == (0, list(range(RECORDS)), []), said
    assert " running (Thread" in said
    assert time.monotonic() - began < STOP_S  # the event store's process ends by itself


def test_an_adapter_that_ends_the_process_at_once_is_refused(tmp_path: Path) -> None:
    logs(tmp_path)
    (tmp_path / "ends.py").write_text("import os\nos._exit(0)\n")
    code, said, pairs, _ = joined(tmp_path, code="ends.py")
    assert (code, pairs) == (2, [])
    assert said.endswith("code that is not Photon's ended the process too early (exit 0); fix the adapter\n")


def test_columns_in_another_order_join_no_wrong_pairs(tmp_path: Path) -> None:
    logs(tmp_path)
    code, said, pairs, _ = joined(tmp_path, "Reverses")
    assert (code, pairs) == (0, list(range(RECORDS)))
    assert "must not change the lists that are passed to it" in said
