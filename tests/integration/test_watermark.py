"""Watermarks of a live pipeline whose processes are killed: never decreasing, always true, and awaited by a
command."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from photon.config.disk import RealDisk
from photon.outputs.cursor import OutputLog
from photon.outputs.watermarks import Pair, late_in, pairs_of, read_journal
from photon.supervision.ports import free_row
from tests.integration.commands import photon, until
from tests.integration.verified_site import SLOT, WAIT_S, Site, site_in

KINDS = ("joined", "unmatched")
STEP_S, A_STEP = 0.25, 5


class Feed(threading.Thread):
    """Clicks of the current time, every tenth without its query; some queries come late."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.site, self.ended = site, threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self.ended.wait(STEP_S):
            for _ in range(A_STEP):
                n = self.count = self.count + 1
                with open(self.site.clicks, "ab") as clicks:
                    clicks.write(b'{"id":"c%06d","q":"q%06d","t":%.3f}\n' % (n, n, time.time()))
                with open(self.site.queries, "ab") as queries:
                    queries.write(b'{"q":"q%06d","words":"w"}\n' % (n - 5 if n % 10 else 0))

    def end(self) -> None:
        self.ended.set()
        self.join()


def _times(site: Site, kind: str) -> list[tuple[tuple[int, int], int]]:
    """(place in the log, event time) of its records."""
    found = []
    for path in sorted((site.base / "output" / kind).glob("*.jsonl")):
        number, at = int(path.stem.rpartition("-")[2]), 0
        for line in path.read_bytes().splitlines(keepends=True):
            found.append(((number, at), json.loads(line)["event_time_ns"]))
            at += len(line)
    return found


def _wait(site: Site, moment_s: float, *more: str) -> tuple[int, dict[str, object]]:
    command = ("watermark", "wait", f"{moment_s:.0f}", "--config", site.file, "-o", "json", *more)
    result = photon(*command, timeout=2 * WAIT_S)
    return result.code, json.loads(result.out) if result.out else {}


def _promise(base: Path) -> None:
    file = base / "photon.toml"
    text = file.read_text().replace("[join.clicks]\n", '[join.clicks]\nwritten_within = "5s"\n')
    file.write_text(f'clock = {{ uncertainty = "0.5s" }}\n{text}')


def _several(base: Path) -> None:
    _promise(base)
    file = base / "photon.toml"
    two = f'dispatchers = 2\napart.dispatcher = "127.0.0.1:{free_row(2)}"'
    file.write_text(re.sub(r"apart.dispatcher = '.*'", two, file.read_text()))


@pytest.mark.parametrize(
    ("prepare", "dispatchers"),
    [(_promise, ("dispatcher east",) * 2), (_several, ("dispatcher east 1of2", "dispatcher east 2of2"))],
)
def test_it_is_true_and_never_goes_back_whoever_is_killed(
    tmp_path: Path, prepare: Callable[[Path], None], dispatchers: tuple[str, str]
) -> None:
    with site_in(tmp_path, prepare=prepare) as site:
        feed = Feed(site)
        feed.start()
        try:
            until(lambda: any(each.exact_ns for each in _pairs(site)), WAIT_S, "there is a watermark")
            assert _wait(site, time.time(), "--timeout", "0.3")[0] == 3
            for victim in (dispatchers[0], f"joiner {SLOT}", "verifier east", dispatchers[1]):
                site.hold(victim)
                time.sleep(1.0)
                site.release(victim)
                time.sleep(2.0)
            held = time.time()
        finally:
            feed.end()
        code, said = _wait(site, held + 2, "--final", "--timeout", str(WAIT_S))
        assert (code, said["reached"], said["final"], said["waiting"]) == (0, True, True, 0)
        assert _wait(site, held, "--percentile", "--timeout", str(WAIT_S))[0] == 0
        shown = photon("watermark", "--config", site.file, timeout=WAIT_S)
        assert (shown.code, "east" in shown.out) == (0, True)
        read = photon("read", "--config", site.file, "--with-watermark", timeout=WAIT_S).out.splitlines()
        assert json.loads(read[-1])["exact_ns"] >= held * 1e9
        pairs = _pairs(site)
        exact = [each.exact_ns for each in pairs if each.exact_ns is not None]
        assert exact == sorted(exact)
        assert late_in(read_journal(RealDisk(), tmp_path / "state")) == 0
        count = 0
        for kind in KINDS:
            log = OutputLog(SLOT, kind)
            for place, time_ns in _times(site, kind):
                count += 1
                for pair in pairs:
                    if pair.exact_ns is not None and time_ns < pair.exact_ns:
                        assert place < pair.cursor.positions.get(log, (0, 0)), (kind, place, pair)
        assert count == feed.count


def _pairs(site: Site) -> list[Pair]:
    return pairs_of(read_journal(RealDisk(), site.base / "state"))
