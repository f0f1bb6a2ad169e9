"""The event store as a real process: SIGTERM, death of the parent, kill -9 while it reads."""

from __future__ import annotations

import asyncio
import gzip
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import zstandard

from photon.config.clock import NEVER_NS
from photon.eventstore.api import LookUpCode
from photon.eventstore.client import EventStoreClient

ROOT = Path(__file__).parents[3]
CHILD = """
import asyncio, sys
from pathlib import Path
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.config.stopping import stop_event
from photon.eventstore.engine import EventStoreConfig
from photon.eventstore.api import EventStoreFailed
from photon.eventstore.process import ServedJoin, serve
from tests.unit.eventstore.helpers import LineAdapter

base = Path(sys.argv[1])
config = EventStoreConfig("clicks", base / "logs", base / "map", cache_bytes=1)


async def main():
    await serve(
        [ServedJoin(config, LineAdapter({}))], address="127.0.0.1:0", clock=SystemClock(), disk=RealDisk(),
        ready=lambda port, engines: print(port, flush=True), report=lambda line: print(line, file=sys.stderr),
        stop=stop_event(with_parent=True))


try:
    asyncio.run(main())
except EventStoreFailed as err:
    sys.exit(f"photon: {err}")
"""


def start(base: Path) -> tuple[subprocess.Popen[str], int]:
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(base)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise AssertionError(child.communicate()[1])
    return child, int(line)


def end(child: subprocess.Popen[str]) -> tuple[int, str]:
    stderr = child.communicate(timeout=30)[1]
    return child.returncode, stderr


def test_sigterm_and_the_parents_death_end_it_cleanly(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    child, _ = start(tmp_path)
    child.send_signal(signal.SIGTERM)
    assert end(child) == (0, "")
    child, _ = start(tmp_path)
    assert child.stdin is not None
    child.stdin.close()
    child.stdin = None
    assert end(child) == (0, "")


def test_start_errors_are_one_line(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        timeout=60,
        check=False,
    )
    assert child.returncode == 1
    assert child.stderr.count("\n") == 1
    assert "no such directory" in child.stderr


async def found_all(port: int, keys: list[bytes]) -> bool:
    client = EventStoreClient(f"127.0.0.1:{port}", "clicks")
    found = await client.look_up(keys, [NEVER_NS] * len(keys))
    # A key in a log may be unread, or in a file not seen yet: it is never absent.
    assert LookUpCode.ABSENT not in found.answers
    await client.close()
    return set(found.answers) == {LookUpCode.FOUND}


class Writer:
    """Primary logs that grow, roll and are compressed, while the store is killed."""

    def __init__(self, logs: Path, rng: random.Random) -> None:
        self.logs = logs
        self.rng = rng
        self.keys: list[bytes] = []
        self.rolled = 0

    def write(self, events: int) -> None:
        """Writes more events, in several logs."""
        for name in ("a.log", "b.log"):
            new = [b"%s-%d" % (name[:1].encode(), len(self.keys) + i) for i in range(events // 2)]
            with (self.logs / name).open("ab") as file:
                file.write(b"".join(key + b"," + b"x" * 80 + b"\n" for key in new))
            self.keys += new

    def roll(self) -> None:
        """One log's file gets another name, and an older one is compressed."""
        name = self.rng.choice(("a.log", "b.log"))
        if not (self.logs / name).exists():
            return
        self.rolled += 1
        (self.logs / name).rename(self.logs / f"{name}.{self.rolled}")
        plain = sorted(self.logs.glob("*.log.*[0-9]"))
        if len(plain) > 2:
            old = self.rng.choice(plain)
            data = old.read_bytes()
            suffix, packed = self.rng.choice(
                ((".gz", gzip.compress(data, 1)), (".zst", zstandard.ZstdCompressor(level=1).compress(data)))
            )
            old.with_name(old.name + ".tmp").write_bytes(packed)
            old.with_name(old.name + ".tmp").rename(old.with_name(old.name + suffix))
            old.unlink()


KILLS = 20 if os.environ.get("PHOTON_FULL") else 2


def test_kill_9_at_random_moments_forgets_no_key(tmp_path: Path) -> None:
    seed = int(os.environ.get("PHOTON_SEED", random.randrange(2**32)))
    print("PHOTON_SEED", seed)
    rng = random.Random(seed)
    (tmp_path / "logs").mkdir()
    writer = Writer(tmp_path / "logs", rng)
    for _ in range(KILLS):
        writer.write(20_000)
        child, port = start(tmp_path)
        deadline = time.monotonic() + rng.random() * 0.6
        while time.monotonic() < deadline:
            asyncio.run(found_all(port, rng.sample(writer.keys, 50)))
            if rng.random() < 0.3:
                writer.write(2_000)
                writer.roll()
        child.kill()
        end(child)
        writer.roll()
    child, port = start(tmp_path)
    try:
        deadline = time.monotonic() + 60
        while not asyncio.run(found_all(port, rng.sample(writer.keys, 3000))):
            assert time.monotonic() < deadline, "not all keys were found in time"
        assert asyncio.run(found_all(port, writer.keys))
        child.send_signal(signal.SIGTERM)
        assert end(child) == (0, "")
    finally:
        child.kill()
        child.wait()
