"""Output of the read-only commands for a deployment: their ``-o json`` is a contract, and their views are what people
see. Servers of this test supply the facts, over gRPC as in a deployment."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from photon.adapters.logs.lag import Lag, LogLag
from photon.cli.main import main
from photon.config.clock import SystemClock
from photon.config.metrics.readings import ProcessMetrics, Readings
from photon.config.serving import HealthyServer, listen
from photon.dispatcher.homes import HomeStatus
from photon.dispatcher.ledger import FINAL, HOUR_NS, Verdict, ledger_of
from photon.dispatcher.status import JoinTimes, Status, details_of, reads
from photon.fleet import ledger
from photon.fleet.polling import Gatherer
from photon.joiner.process import details_of as joiner_details
from photon.supervision.ports import free_ports, free_row

COMMANDS = {
    "status": ("status",),
    "top": ("status", "top", "--every", "0.3", "--sort", "name"),
    "lag": ("status", "lag", "--datacentre", "east"),
    "lag of west": ("status", "lag", "--datacentre", "west"),
    "ledger": ("status", "ledger"),
    "doctor": ("doctor",),
    "cache": ("status", "cache", "--datacentre", "east"),
}
IN_WORDS = ("status", "lag", "lag of west", "ledger", "cache")  # views that show nothing of this machine
SINCE = re.compile(r"[12],?\d\d\d\.\d|3\d min \d+ s|last \d\.\d s")  # durations since something 1990 s ago
VOLATILE = {
    "at_s", "window_s", "uptime_s", "seconds", "oldest_pending_s", "retry_store_oldest_s", "foreign_lag_s", "history",
    "day", "cpu", "memory_bytes", "open_files", "version", "waiting_seconds", "file", "age_s",
}  # fmt: skip
# Wait for an answer: a busy machine may leave this process alone for longer than people want to wait.
PATIENT_S = 60.0
PORTS = (
    "r1",
    "wan",
    "east",
    "1of2",
    "2of2",
    "east-1",
    "c1",
    "store-east",
    "verifier",
    "west-1",
    "datacentre-west",
    "store-west",
    "status",
)
FILE = """
key_file = "key"
[join.clicks]
unmatched_after = "1h"
primary = { format = "jsonl", key = "q" }
foreign = { format = "jsonl", key = "q", id = "id", time = { field = "t", unit = "s" } }
[wan]
control = "@wan"
[registry.replicas.r1]
address = "@r1"
directory = "registry"
[datacentre.east]
join = "clicks"
primary = "queries"
foreign = "clicks"
output = "east/output"
state = "east/state"
apart.eventstore = "@store-east"
apart.joiner = "@east-1"
apart.dispatcher = "@east"
apart.verifier = "@verifier"
apart.status = "@status"
apart.cache = "@c1"
[datacentre.west]
join = "clicks"
primary = "queries"
foreign = "clicks"
output = "west/output"
state = "west/state"
address = "@datacentre-west"
status = ""
apart.eventstore = "@store-west"
apart.joiner = "@west-1"
apart.dispatcher = "@1of2"
dispatchers = 2
"""


class Engine:
    """Engine of a dispatcher, as far as its reports go."""

    def __init__(self, **more: Any) -> None:
        since_ns = SystemClock().now_ns() - 1990 * 10**9
        lag = Lag(3, 1, 70, since_ns, (LogLag("c.log", 70, since_ns),))
        verdicts = dict.fromkeys(FINAL, 0) | {Verdict.JOINED: 8, Verdict.REJECTED: 1}
        self._status = Status(
            read=10, verdicts=verdicts, reread=1, wasted=2, retimed=0, bytes_read=900, bytes_known=970, in_flight=1,
            stored=1, look_ups=3, attempts=4, oldest_first_read_ns=None, caught_up=False, lag=lag, stored_bytes=50,
            oldest_stored_ns=since_ns, homes=(HomeStatus("west", True, 5, 4),), **more,
        )  # fmt: skip
        self.times = JoinTimes()

    def status(self) -> Status:
        return self._status

    def ledger(self) -> Any:
        counts = [(1, Verdict.READ, 10), (1, Verdict.JOINED, 8), (1, Verdict.REJECTED, 1), (1, Verdict.WASTED, 2)]
        counts.append((1, Verdict.REREAD, 1))
        return ledger_of(counts, [(1, 1)])

    def oldest(self, number: int) -> Any:
        event = {"event_id": "id1", "log": "c.log", "offset": 7, "first_read_ns": SystemClock().now_ns() - HOUR_NS}
        return [SimpleNamespace(**event, tries=2, next_try_ns=None, reason="registry")]


def _dispatcher(**more: Any) -> ProcessMetrics:
    engine: Any = Engine(**more)

    clock = SystemClock()
    return ProcessMetrics(
        [reads("clicks", lambda: engine, clock, retry_limit=100)], lambda: details_of("clicks", engine, clock)
    )


def _joiner(into: Readings) -> None:
    into.put("photon_joiner_outcomes_total", 9, join="clicks", slot="east-1", outcome="joined")
    into.put("photon_joiner_open_ids", 4, join="clicks", slot="east-1")
    into.put("photon_joiner_copy_behind_bytes", 12, join="clicks", slot="east-1")
    into.put("photon_joiner_copy_bypassed", 1, join="clicks", slot="east-1")


def _verifier(into: Readings) -> None:
    for name, value in (("published_bytes", 90), ("cleared_bytes", 50), ("checked_bytes", 40), ("owned_ids", 3)):
        into.put(f"photon_verifier_{name}", value, slot="east-1")


def _registry(into: Readings) -> None:
    into.put("photon_registry_ids", 10, shard="1")
    into.put("photon_registry_id_bytes", 480, shard="1")
    into.put("photon_registry_leader", 1, shard="1")
    into.put("photon_registry_commit_p50_seconds", 0.002, shard="1")


def _cache(into: Readings) -> None:
    for name, value in (("hits_total", 3), ("misses_total", 1), ("evictions_total", 2), ("fed_bytes_total", 70)):
        into.put(f"photon_cache_{name}", value)
    for name, value in (
        ("fed_events_total", 7),
        ("bytes", 60),
        ("limit_bytes", 100),
        ("entries", 6),
        ("segments", 2),
    ):
        into.put(f"photon_cache_{name}", value)


def _processes() -> dict[str, tuple[str, ProcessMetrics]]:
    alarm = {"finding": "torn", "what": "w", "todo": "t"}
    slots = [{"slot": "east-1", "state": "live", "problem": "", "alarms": [alarm]}]
    shards = {"config": 2, "change": None, "shards": [{"shard": 1, "leader": "", "ids": 0, "boundary_s": None}]}
    shell = SimpleNamespace(copies=None, oldest_unshown_ns=5)
    joiner: Any = SimpleNamespace(opened=SimpleNamespace(slot="east-1", shell=shell))
    return {
        "east": ("Dispatcher", _dispatcher(joiners_failing=1)),
        "1of2": ("Dispatcher", _dispatcher()),
        "east-1": ("Joiner", ProcessMetrics([_joiner], lambda: joiner_details([joiner]))),
        "verifier": ("Verifier", ProcessMetrics([_verifier], lambda: {"slots": slots})),
        "r1": ("Registry", ProcessMetrics([_registry], lambda: shards)),
        "c1": ("Cache", ProcessMetrics([_cache])),
    }


@contextmanager
def deployment(base: Path) -> Iterator[dict[str, str]]:
    """Some of its processes answer, others do not; where each is."""
    at = {name: f"127.0.0.1:{port}" for name, port in zip(PORTS, free_ports(len(PORTS)), strict=True)}
    first = free_row(2)
    at |= {"1of2": f"127.0.0.1:{first}", "2of2": f"127.0.0.1:{first + 1}"}
    text = FILE
    for name in sorted(PORTS, key=len, reverse=True):
        text = text.replace(f'"@{name}"', f'"{at[name]}"')
    (base / "photon.toml").write_text(text)
    (base / "key").write_bytes(b"k" * 32)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def done(what: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(what, loop).result(20.0)

    with ExitStack() as stack:
        stack.callback(lambda: (loop.call_soon_threadsafe(loop.stop), thread.join(), loop.close()))
        for name, (service, metrics) in _processes().items():
            server: HealthyServer = done(listen(at[name], f"photon.v1.{service}", metrics=metrics))
            stack.callback(lambda server=server: done(server.stop(0.0)))
        yield at


def _steady(value: Any, at: dict[str, str]) -> Any:
    """Without parts that differ between runs; addresses by their names."""
    if isinstance(value, dict):
        return {key: "…" if key in VOLATILE else _steady(each, at) for key, each in value.items()}
    if isinstance(value, list):
        return [_steady(each, at) for each in value if not _of_this_machine(each)]
    if isinstance(value, str):
        value = re.sub("UNAVAILABLE.*", "UNAVAILABLE", value)
        for name, address in at.items():
            value = value.replace(address, f"@{name}")
    return value


def _of_this_machine(value: Any) -> bool:
    return isinstance(value, dict) and value.get("area") not in (None, "ports", "certificates")


def _looked(name: str, base: Path, *more: str) -> Result:
    return CliRunner().invoke(main, [*COMMANDS[name], "--config", str(base / "photon.toml"), *more])


def test_commands_that_look_in_json_and_in_words(
    tmp_path: Path, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gatherer.__init__, "__defaults__", (PATIENT_S,))
    monkeypatch.setattr(ledger, "ASK_S", PATIENT_S)
    found, views = {}, []
    with deployment(tmp_path) as at:
        for name in COMMANDS:
            done = _looked(name, tmp_path, "-o", "json")
            assert done.stdout.startswith("{"), (name, done.output, done.exception)
            found[name] = {"exit": done.exit_code, "json": _steady(json.loads(done.stdout), at)}
        for name in IN_WORDS:
            shown = _looked(name, tmp_path).stdout
            for number, address in at.items():
                shown = shown.replace(address, f"@{number}".ljust(len(address)))
            views.append(f"$ photon {' '.join(COMMANDS[name])}\n{SINCE.sub(_hidden, shown)}")
    golden("looking.json", json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    golden("looking.txt", "\n".join(views))


def _hidden(since: re.Match[str]) -> str:
    return re.sub(r"\d", "#", since[0])
