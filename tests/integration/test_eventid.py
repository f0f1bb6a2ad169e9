"""photon.eventid in real processes: killed, restarted under an earlier clock, forked while threads draw ids."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from pathlib import Path

from photon.eventid import parse
from tests.integration.commands import drawn_seed

WRITER = """
import sys
from pathlib import Path
from photon.eventid import EventIds, wall_us
back_us = int(sys.argv[2])
ids = EventIds("10.0.0.7", 1, state=Path(sys.argv[1]), now_us=lambda: wall_us() - back_us)
while True:
    sys.stdout.write(chr(10).join(ids.take(500)) + chr(10))
    sys.stdout.flush()
"""
# Ids read before the kill: some hundredths of a second, several marks where ids run ahead of the clock.
LINES = 40_000

FORKED = """
import os, sys, threading
from pathlib import Path
from photon.eventid import EventIdError, EventIds
directory = Path(sys.argv[1])
own, given = EventIds("10.0.0.7"), EventIds("10.0.0.7", 1)
kept = EventIds("10.0.0.8", state=directory / "parent")
stop = threading.Event()
def draw():
    while not stop.is_set():
        own.next(), given.next(), kept.next()
threads = [threading.Thread(target=draw, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
for n in range(20):  # at any moment of the other threads, also while they hold locks
    child = os.fork()
    if not child:
        last = own.next()
        refused = 0
        for ids in (given, kept):
            try:
                ids.next()
            except EventIdError as error:
                refused += "after a fork" in str(error)
        again = EventIds("10.0.0.8", state=directory / f"child-{n}")
        ok = refused == 2 and last.split(":")[1] == again.next().split(":")[1] == str(os.getpid())
        try:
            EventIds("10.0.0.9", state=directory / "parent")
            ok = False
        except EventIdError as error:
            ok = ok and "another process" in str(error)
        again.close()
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0, n
stop.set()
for thread in threads:
    thread.join()
assert own.next().split(":")[1] == kept.next().split(":")[1] == str(os.getpid())
child = os.fork()
if not child:  # outlives its parent's use of the file, and does not keep it locked
    os.read(0, 1)
    os._exit(0)
kept.close()
EventIds("10.0.0.8", state=directory / "parent").close()
print("fine")
sys.stdout.flush()
os.waitpid(child, 0)
"""


def test_killed_and_restarted_under_an_earlier_clock(tmp_path: Path) -> None:
    rnd = random.Random(drawn_seed())
    last = 0
    for _ in range(6):
        back_us = rnd.choice([0, 10**6, 3600 * 10**6])
        command = [sys.executable, "-c", WRITER, str(tmp_path / "mark"), str(back_us)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            try:
                lines = [writer.stdout.readline() for _ in range(rnd.randrange(1, LINES))]
            finally:
                writer.kill()
            lines += writer.stdout.readlines()
        times = [parse(line.rstrip("\n")).time_us for line in lines if line.endswith("\n")]
        assert times[0] > last
        assert all(a < b for a, b in itertools.pairwise(times))
        last = times[-1]


def test_forked_while_threads_draw(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED, str(tmp_path)],
        capture_output=True, text=True, timeout=60, input="x", check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")
