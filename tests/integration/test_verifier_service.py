"""The continuous verifier as a process: defects planted in output and logs are reported, once, and nothing
else is."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path

import orjson

from tests.integration.commands import drawn_seed, photon, until
from tests.integration.verified_site import SLOT, WAIT_S, Site, site_in

FAILED, ATTENTION = 1, 3
FIRST, SECOND = 300, 300


def drawn() -> random.Random:
    return random.Random(drawn_seed())


def lines_of(path: Path) -> dict[str, tuple[int, bytes]]:
    """Event id -> (offset, line)."""
    found, at = {}, 0
    for line in path.read_bytes().splitlines(keepends=True):
        found[orjson.loads(line)["event_id"]] = (at, line)
        at += len(line)
    return found


def change(path: Path, at: int, old: bytes, new: bytes) -> None:
    """In place: processes that have the file open see it."""
    assert len(old) == len(new)
    with open(path, "r+b") as file:
        file.seek(at)
        data = file.read(1 << 16)
        begin = data.index(old)
        file.seek(at + begin)
        file.write(new)


class Defects:
    """Plants one of each kind; ``expected`` counts (finding, event id)."""

    def __init__(self, site: Site, draw: random.Random) -> None:
        self.site = site
        self.expected: Counter[tuple[str, str]] = Counter()
        self.joined = site.output_of("joined")
        self.unmatched = site.output_of("unmatched")
        self.lines = lines_of(self.joined)
        second = [each for each in self.lines if int(each[1:]) >= FIRST]
        self.victims = draw.sample(second, 7)
        self.early = draw.choice([each for each in self.lines if int(each[1:]) < FIRST])

    def plant(self) -> None:
        output, primary, foreign, other_id, other_key, torn, twice = self.victims
        at, _ = self.lines[output]
        change(self.joined, at, b'"words":"some', b'"words":"sOme')
        self._expect("differs", output)
        change(
            self.site.queries, 0, b"words of query " + primary[1:].encode(), b"wOrds of query " + primary[1:].encode()
        )
        self._expect("differs", primary)
        number = foreign[1:].encode()
        change(self.site.clicks, 0, b'"text":"text ' + number, b'"text":"tExt ' + number)
        self._expect("differs", foreign)
        change(self.site.clicks, 0, b'{"id":"' + other_id.encode(), b'{"id":"X' + other_id[1:].encode())
        self._expect("no-source", other_id)
        change(self.site.queries, 0, b'{"q":"q' + other_key[1:].encode(), b'{"q":"X' + other_key[1:].encode())
        self._expect("no-source", other_key)
        at, line = self.lines[torn]
        change(self.joined, at, line[-40:], b"#" * 39 + b"\n")
        self._expect("torn", "")
        undone = lines_of(self.unmatched)
        last = max(undone)
        change(self.unmatched, undone[last][0], b"text " + last[1:].encode(), b"tExt " + last[1:].encode())
        self._expect("differs", last)
        invented = self.lines[twice][1].replace(twice.encode(), b"i" + twice[1:].encode(), 1)
        with open(self.joined, "ab") as file:
            file.write(self.lines[twice][1] + self.lines[self.early][1] + invented)
        self._expect("doubled", twice)
        self._expect("doubled", self.early)
        self._expect("not-owned", "i" + twice[1:])
        self._expect("no-source", "i" + twice[1:])
        self.site.publish(self.joined)

    def _expect(self, finding: str, event_id: str) -> None:
        self.expected[finding, event_id] += 1


def test_what_is_planted_is_told_once_and_nothing_else(tmp_path: Path) -> None:
    draw = drawn()
    with site_in(tmp_path) as site:
        site.write(FIRST, missing=10)
        until(site.settled, WAIT_S, "all is written, cleared and checked")
        assert site.alarms() == []
        assert site.slot()["checked_lines"] == FIRST

        second = photon("serve", "verifier", "--config", site.file)
        assert (second.code, len(second.err.strip().splitlines())) == (FAILED, 1)
        assert "another verifier (pid " in second.err

        site.hold("verifier east")
        site.write(SECOND, missing=10)
        until(lambda: len(site.ids()) == FIRST + SECOND and site.published(), WAIT_S, "all is published")
        site.hold(f"joiner {SLOT}")  # the files stay as they are
        defects = Defects(site, draw)
        defects.plant()
        site.release("verifier east")
        for _ in range(2):
            site.kill_verifier()
        until(lambda: site.slot()["behind"] == 0 and site.cleared(), WAIT_S, "all is checked and cleared")
        until(lambda: Counter(site.alarms()) == defects.expected, WAIT_S, f"told: {defects.expected}")
        told = [json.loads(line) for line in (site.state / "verifier/alarms.jsonl").read_text().splitlines()[1:]]
        assert Counter((each["finding"], each["event_id"]) for each in told) == defects.expected
        assert all(each["todo"] and each["what"] and each["file"] for each in told)
        shown = photon("status", "verifier", "--config", site.file)
        assert shown.out.count(": differs at joined/") == 3
        acknowledged = photon("verifier", "acknowledge", "--yes", "--config", site.file)
        assert acknowledged.out == f"{defects.expected.total()} alarms acknowledged\n"
        assert site.alarms() == []

        whole = defects.unmatched.read_bytes()
        os.truncate(defects.unmatched, len(whole) // 2)  # though it was verified
        until(lambda: site.alarms() == [("changed", "")], WAIT_S, "a file that was cut short is told")
        doctor = photon("doctor", "--config", site.file)
        assert f"has {len(whole) // 2} bytes, but {len(whole)} were published" in doctor.out
        assert doctor.code == ATTENTION
        defects.unmatched.write_bytes(whole)
        until(lambda: site.alarms() == [], WAIT_S, "it is there again")


def test_ids_of_a_dead_joiner_are_told_with_its_slot_s_state(tmp_path: Path) -> None:
    with site_in(tmp_path, owned_alarm=2.0) as site:
        for _ in range(10):
            before = len(site.ids())
            site.write(200)
            until(lambda: len(site.ids()) > before, WAIT_S, "something is written")  # noqa: B023
            site.kill_joiner()  # usually before its output is published
            if not site.published():
                break
            site.release(f"joiner {SLOT}")
        until(lambda: site.alarms() == [("owned-too-long", "")], WAIT_S, "it is told")
        slot = site.slot()
        (alarm,) = slot["alarms"]
        assert f"slot {SLOT}: no live process holds it" in alarm["what"]
        assert "bytes in its redo log" in alarm["what"]
        assert (slot["state"], slot["owned"] > 0) == ("down", True)
        site.release(f"joiner {SLOT}")
        until(site.settled, WAIT_S, "its redo has written the rest")
        until(lambda: site.alarms() == [], WAIT_S, "it is over")
