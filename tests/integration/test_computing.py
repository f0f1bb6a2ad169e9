"""Computations as a user runs them: killed at any moment, and over two datacentres while one is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import photon
from photon.computing.examples.zeitgeist import judge, page
from photon.lab.demo.deployment import DemoDeployment, Shape
from photon.lab.demo.feed import Feed
from photon.lab.demo.generator import Line
from tests.integration.commands import children, drawn_seed, interrupt, running, until
from tests.integration.commands import photon as command
from tests.integration.rig import STEP_S
from tests.integration.supervised import supervised

FULL = bool(os.environ.get("PHOTON_FULL"))
ROUNDS = 20 if FULL else 3
EVENTS = 20_000 if FULL else 6_000
WAIT_S = 120.0
T_S = 1_760_000_000

SUMS = """
import time

from photon.computing import SECOND_NS, Computation, Topology, seconds


class Sum(Computation):
    def process_record(self, ctx, record):
        time.sleep(0.0002)
        end = seconds(record.time_ns) + SECOND_NS
        ctx.state[end] = ctx.state.get(end, 0) + record.value["foreign"]["n"]
        ctx.set_timer("end", end)
        ctx.produce("seen", {"n": record.value["foreign"]["n"]})

    def process_timer(self, ctx, timer):
        ctx.produce("sums", {"second": timer.time_ns, "sum": ctx.state.pop(timer.time_ns)})


class Total(Computation):
    def process_record(self, ctx, record):
        ctx.state["sum"] = ctx.state.get("sum", 0) + record.value["sum"]
        ctx.set_timer("end", record.time_ns)

    def process_timer(self, ctx, timer):
        ctx.produce("totals", {"second": timer.time_ns, "sum": ctx.state.pop("sum")})


topology = Topology("sums")
joined = topology.joined("out")
topology.add(Sum(), {joined: lambda record: record.value["primary"]["user"]}, ["sums", "seen"])
topology.add(Total(), {"sums": lambda record: str(record.value["second"])}, ["totals"])
for stream in ("seen", "totals"):
    topology.publish(stream, "published/" + stream)
"""


ALSO = """

class Also{n}(Computation):
    def process_record(self, ctx, record):
        ctx.state["n"] = ctx.state.get("n", 0) + 1


topology.add(Also{n}(), {{"sums": lambda record: str(record.value["second"])}})
"""


def _joined(base: Path) -> None:
    for name in ("queries", "clicks"):
        (base / name).mkdir()
    with open(base / "queries" / "queries.log", "w") as queries, open(base / "clicks" / "clicks.log", "w") as clicks:
        for n in range(EVENTS):
            queries.write(f'{{"q":"q{n:06d}","user":"u{n % 37}"}}\n')
            clicks.write(f'{{"id":"c{n:06d}","q":"q{n:06d}","t":{T_S + n * 30 / EVENTS:.6f},"n":{n}}}\n')
    (base / "join.toml").write_text(
        '[join.clicks]\n[join.clicks.primary]\nformat = "jsonl"\nkey = "q"\n[join.clicks.foreign]\nformat = "jsonl"\n'
        'key = "q"\nid = "id"\ntime = { field = "t", unit = "s" }\n'
    )
    logs = ("--primary", base / "queries", "--foreign", base / "clicks", "--output", base / "out")
    done = command("join", "--config", base / "join.toml", *logs, "--once")
    assert done.code == 0, done.err


def test_kill_9_leaves_no_record_out_and_doubles_none(tmp_path: Path) -> None:
    rng = random.Random(drawn_seed())
    _joined(tmp_path)
    file = tmp_path / "sums.py"
    file.write_text(SUMS)
    run = ("compute", "run", file, "--once", "--processes", "2")
    status = tmp_path / ".photon-compute" / "sums" / "i0.status.json"
    killed = 0
    for _ in range(ROUNDS):
        with running(*run, log=tmp_path / "log") as process:
            began = time.time()
            until(lambda: process.poll() is not None or _said(status) > began, WAIT_S, "it computes")  # noqa: B023
            time.sleep(rng.uniform(0.0, 1.0))
            victims = children(process.pid)
            if rng.random() < 0.5:  # one of two, which is started again, and then all
                for victim in victims[:1]:
                    os.kill(victim, signal.SIGKILL)
                time.sleep(rng.uniform(0.0, 3.0))
                victims = children(process.pid)
            killed += process.poll() is None
            for pid in (process.pid, *victims):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert killed
    done = command(*run, "-o", "json", timeout=2 * WAIT_S)
    assert done.code == 0, done.err
    _check_sums(tmp_path)


def _check_sums(tmp_path: Path) -> None:
    """Each record once, in the records seen and in the sums."""
    assert sorted(each.foreign["n"] for each in photon.read(tmp_path / "published" / "seen")) == list(range(EVENTS))
    sums: Counter[int] = Counter()
    for each in photon.read(tmp_path / "out"):
        sums[(each.event_time_ns // 10**9 + 1) * 10**9] += each.foreign["n"]
    totals = [each.foreign for each in photon.read(tmp_path / "published" / "totals")]
    assert sorted((each["second"], each["sum"]) for each in totals) == sorted(sums.items())


def _said(status: Path) -> float:
    return status.stat().st_mtime if status.exists() else 0.0


def test_kill_9_while_keys_move_and_the_topology_changes(tmp_path: Path) -> None:
    """Splits, merges and reloads of running processes; any of them is killed meanwhile, including the command."""
    rng = random.Random(drawn_seed())
    _joined(tmp_path)
    file = tmp_path / "sums.py"
    slow = SUMS.replace("0.0002", "0.001")
    file.write_text(slow)
    state = tmp_path / ".photon-compute" / "sums"
    run = ("compute", "run", file)
    for n in range(ROUNDS):
        with running(*run, log=tmp_path / "log") as process:
            began = time.time()
            until(lambda: _last_said(state) > began, WAIT_S, "it computes")  # noqa: B023
            if n % 3 == 2:
                file.write_text(slow + ALSO.format(n=n))
                asked = ("compute", "reload", file)
            else:
                asked = ("compute", "rescale", file, "--processes", str(1 + (_count(state) + n) % 3))
            with running(*asked, "--timeout", "60", log=tmp_path / "log") as asking:
                time.sleep(rng.uniform(0.0, 6.0))
                victims = [process.pid, *children(process.pid)]
                if rng.random() < 0.5:
                    victims = [rng.choice(victims)]
                for pid in victims:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                if rng.random() < 0.5:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(asking.pid, signal.SIGKILL)
            for pid in (process.pid, *children(process.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    for count in ("3", "1"):
        done = command("compute", "rescale", file, "--processes", count, "-o", "json", timeout=2 * WAIT_S)
        assert done.code == 0, done.err
        assert len(json.loads(done.out)["intervals"]) == int(count)
    done = command(*run, "--once", "-o", "json", timeout=2 * WAIT_S)
    assert done.code == 0, done.err
    _check_sums(tmp_path)


def _last_said(state: Path) -> float:
    return max((_said(path) for path in state.glob("*.status.json")), default=0.0)


def _count(state: Path) -> int:
    return len(json.loads((state / "intervals.json").read_bytes())["intervals"])


# -- Zeitgeist -------------------------------------------------------------------------------------------------------
SECONDS = 26
SPIKE, DIP = 17, 21
LOST_AT_S, LOST_S = 11.0, 8.0


def _lines(begin_s: int) -> tuple[list[Line], Counter[tuple[str, int]]]:
    """Clicks with their queries from ``begin_s`` on, and the number of each query per second."""
    lines: list[Line] = []
    truth: Counter[tuple[str, int]] = Counter()
    for second in range(SECONDS):
        for terms, usual in (("rain", 6), ("shoes", 20)):
            count = {("rain", SPIKE): 30, ("shoes", DIP): 0}.get((terms, second), usual)
            truth[terms, begin_s + second] = count
            for n in range(count):
                at_us = second * 1_000_000 + n * 1_000_000 // count
                query = f"{terms}-{second}-{n}"
                time_us = begin_s * 1_000_000 + at_us
                click = f'{{"click_id":"c-{query}","query_id":"{query}","time_us":{time_us}}}\n'
                lines.append(Line(at_us, True, f'{{"query_id":"{query}","terms":"{terms}"}}\n'.encode()))
                lines.append(Line(at_us + 1, False, click.encode()))
    return sorted(lines, key=lambda line: line.at_us), truth


def _expected(truth: Counter[tuple[str, int]], begin_s: int) -> set[tuple[str, int, str]]:
    """The sequential reference."""
    found = set()
    for terms in ("rain", "shoes"):
        model = None
        for second in range(begin_s, begin_s + SECONDS):
            model, kind = judge(model, truth[terms, second])
            if kind:
                found.add((terms, second, kind))
    return found


async def test_zeitgeist_over_two_datacentres_of_which_one_is_lost_and_returns(tmp_path: Path) -> None:
    demo = DemoDeployment(tmp_path, Shape(joiners=1, round_trip_s=None, unmatched_after_s=5.0))
    settings = tmp_path / "photon.toml"
    text = settings.read_text()
    settings.write_text(text.replace("[join.clicks]\n", '[join.clicks]\nwritten_within = "3s"\n', 1))
    file = tmp_path / "zeitgeist.py"
    file.write_text(
        "from photon.computing.examples.zeitgeist import made\n\ntopology = made('photon.toml', 'streams')\n"
    )
    streams = tmp_path / "streams"
    async with supervised(demo.deployment) as supervisor:
        await supervisor.start(demo.deployment.services())
        await supervisor.ready(WAIT_S)
        begin_s = int(time.time()) + 1
        await asyncio.sleep(begin_s - time.time())
        lines, truth = _lines(begin_s)
        feed = Feed(lines, {name: place.logs for name, place in demo.places.items()}, step_s=STEP_S)
        feeding = asyncio.create_task(feed.run())
        with running("compute", "run", file, log=tmp_path / "log") as first:
            await asyncio.sleep(begin_s + LOST_AT_S - time.time())
            names = supervisor.names(datacentre="west")
            feed.copies["west"].held = True
            for name in names:
                supervisor.kill(name, hold=True)
            await asyncio.sleep(LOST_S)
            held = await asyncio.to_thread(_status, file)
            first.kill()
        feed.copies["west"].held = False
        for name in names:
            supervisor.release(name)
        with running("compute", "run", file, log=tmp_path / "log") as again:
            await feeding
            last = begin_s + SECONDS - 1
            await asyncio.to_thread(
                until,
                lambda: _counted(streams, "rain", last) and _counted(streams, "shoes", last),
                WAIT_S,
                "all counted",
            )
            assert await asyncio.to_thread(interrupt, again) == 0
    assert held["owners"][0]["held_by"]["joined"][0].startswith("west"), held
    windows = [each.foreign for each in photon.read(streams / "windows")]
    counted = {(each["query"], each["second"]): each["count"] for each in windows if each["second"] <= last}
    assert counted == dict(truth)
    assert len(windows) == len({(each["query"], each["second"]) for each in windows})
    assert all(each["waiting"] == 0 for each in windows)
    anomalies = [each.foreign for each in photon.read(streams / "anomalies")]
    found = {(each["query"], each["second"], each["kind"]) for each in anomalies if each["second"] <= last}
    assert found == _expected(truth, begin_s)
    assert {("rain", begin_s + SPIKE, "spike"), ("shoes", begin_s + DIP, "dip")} <= found
    assert "spike: 30" in page(windows, anomalies)


def _status(file: Path) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(command("status", "compute", file, "-o", "json").out)
    return said


def _counted(streams: Path, query: str, second: int) -> bool:
    if not (streams / "windows" / ".photon").exists():
        return False
    found = (each.foreign for each in photon.read(streams / "windows"))
    return any((each["query"], each["second"]) == (query, second) for each in found)
