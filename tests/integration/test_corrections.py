"""An adapter's bug is found a day late: the logs are joined again by the fixed adapter, and what was billed becomes
what should have been, through kill -9 of both steps. The truth is made of the raw lines by plain Python."""

from __future__ import annotations

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
from tests.integration.commands import children, drawn_seed, running, until
from tests.integration.commands import photon as command
from tests.integration.operations.runbook import DIRECTORY, Run, steps
from tests.integration.operations.shell import Shell

KILLS = 8 if os.environ.get("PHOTON_FULL") else 2
CLICKS = 8_000
T_S = 1_763_596_800  # 2025-11-20
WAIT_S = 120.0
BUG = """
from typing import Any

import orjson

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Filtered, Joined


class Shop(ConfiguredAdapter):
    \"\"\"Clicks of robots are free. A click costs the price of its query, in cents.\"\"\"

    def join(self, foreign: bytes, foreign_file: Any, primary: bytes, primary_file: Any) -> Joined | Filtered:
        click, query = orjson.loads(foreign), orjson.loads(primary)
        if click["by"] == ROBOT:
            return Filtered("a robot")
        return Joined(orjson.dumps({"cents": round(query["price"] * FACTOR(query["currency"]))}), primary)
"""
WRONG = 'ROBOT, FACTOR = "Bot", lambda currency: 100\n'
RIGHT = 'ROBOT, FACTOR = "bot", lambda currency: 1 if currency == "JPY" else 100\n'
TABLE = """
[join.{join}]
adapter = "{join}.py:Shop"
[join.{join}.options.primary]
format = "jsonl"
key = "q"
[join.{join}.options.foreign]
format = "jsonl"
key = "q"
id = "id"
time = {{ field = "t", unit = "s" }}
"""
DEPLOYMENT = """
[datacentre.{side}-{join}]
join = "{join}"
primary = "queries"
foreign = "{side}"
output = "{side}-{join}"
state = "{side}-{join}/.photon"
address = "127.0.0.1:{port}"
"""
SHAPED = """
[join.clicks.primary]
format = "jsonl"
key = "query"
[join.clicks.foreign]
format = "jsonl"
key = "query"
id = "click"
time = { field = "at", format = "iso8601" }
[join.clicks.shape]
filter = [{ field = "primary.agent", equals = "bot" }]
derive = [{ name = "foreign.cents", from = "primary.plan", values = { pro = 50, free = 1 } }]
"""
Bill = Counter[tuple[str, int]]  # who pays, cents


def _write_logs(base: Path, rng: random.Random) -> tuple[Bill, Bill]:
    """Returns what the wrong and the right adapter bill on the second day, and what the wrong one does before."""
    for name in ("queries", "east", "west"):
        (base / name).mkdir()
    right, before = Bill(), Bill()
    with contextlib.ExitStack() as files:
        queries, east, west = (
            files.enter_context(open(base / name / "log", "w")) for name in ("queries", "east", "west")
        )
        for n in range(CLICKS):
            who, currency, price = f"a{rng.randrange(9)}", rng.choice(("EUR", "JPY")), rng.randrange(1, 50)
            by, t = rng.choice(("person", "bot", "Bot")), T_S - 86_400 + n * 2 * 86_400 // CLICKS
            queries.write(f'{{"q":"q{n}","who":"{who}","currency":"{currency}","price":{price}}}\n')
            rng.choice((east, west)).write(f'{{"id":"c{n}","q":"q{n}","by":"{by}","t":{t}}}\n')
            if t < T_S:
                before.update([(who, price * 100)] if by != "Bot" else [])
            elif by != "bot":
                right[who, price * (1 if currency == "JPY" else 100)] += 1
    return right, before


def _join(base: Path, side: str, join: str) -> tuple[str | Path, ...]:
    logs = ("--primary", base / "queries", "--foreign", base / side, "--output", base / f"{side}-{join}")
    return ("join", "--config", base / "joins.toml", "--join", join, *logs, "--once", "--quiet")


def _kill(process_id: int) -> None:
    for pid in (process_id, *children(process_id)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _said(base: Path) -> float:
    found = (base / ".photon-compute" / "corrections").glob("*.status.json")
    return max((path.stat().st_mtime for path in found), default=0.0)


def _billed(primary: Any, foreign: Any) -> tuple[str, int]:
    return primary["who"], foreign["cents"]


def test_what_was_billed_becomes_what_should_have_been(tmp_path: Path) -> None:
    rng = random.Random(drawn_seed())
    right, before = _write_logs(tmp_path, rng)
    tables = [TABLE.format(join=join) for join in ("clicks", "fixed")]
    (tmp_path / "joins.toml").write_text("".join(tables))
    places = [(side, join) for join in ("clicks", "fixed") for side in ("east", "west")]
    tables += [DEPLOYMENT.format(side=side, join=join, port=7100 + 100 * n) for n, (side, join) in enumerate(places)]
    (tmp_path / "photon.toml").write_text("".join(tables))
    (tmp_path / "clicks.py").write_text(BUG + WRONG)
    (tmp_path / "fixed.py").write_text(BUG + RIGHT)
    for side in ("east", "west"):
        done = command(*_join(tmp_path, side, "clicks"))
        assert done.code == 0, done.err
    for side in ("east", "west"):
        with running(*_join(tmp_path, side, "fixed"), log=tmp_path / "log") as process:
            until((tmp_path / f"{side}-fixed" / "joined").is_dir, WAIT_S, "it joins")
            time.sleep(rng.uniform(0.0, 0.5))
            _kill(process.pid)
        done = command(*_join(tmp_path, side, "fixed"))
        assert done.code == 0, done.err
    (tmp_path / "fix.py").write_text(
        "from photon.computing.corrections import corrections\n\n"
        'topology = corrections("photon.toml", "photon.toml", "corrections", old_join="clicks", new_join="fixed",\n'
        '                       since="2025-11-20")\n'
    )
    run = ("compute", "run", tmp_path / "fix.py", "--once", "--processes", "2")
    killed = 0
    for _ in range(KILLS):
        with running(*run, log=tmp_path / "log") as process:
            began = time.time()
            until(lambda: process.poll() is not None or _said(tmp_path) > began, WAIT_S, "it compares")  # noqa: B023
            time.sleep(rng.uniform(0.0, 1.0))
            killed += process.poll() is None
            _kill(process.pid)
    assert killed
    done = command(*run, "-o", "json", timeout=2 * WAIT_S)
    assert done.code == 0, done.err

    stands = Bill()
    for side in ("east", "west"):
        stands.update(_billed(each.primary, each.foreign) for each in photon.read(tmp_path / f"{side}-clicks"))
    seen = Counter[str]()
    for each in photon.read(tmp_path / "corrections"):
        said = each.foreign
        seen[said["what"]] += 1
        for what, sign in (("old", -1), ("new", 1)):
            if what in said:
                stands[_billed(said[what]["primary"], said[what]["foreign"])] += sign
    assert Counter({bill: n for bill, n in stands.items() if n}) == right + before
    assert set(seen) == {"replaced", "withdrawn", "added"}, seen


def test_the_runbook_works_as_written(tmp_path: Path) -> None:
    plans = {"q1": ("pro", "firefox"), "q2": ("free", "robot"), "q3": ("free", "opera")}
    queries = [{"query": query, "plan": plan, "agent": agent} for query, (plan, agent) in plans.items()]
    clicks = [{"click": f"c{n}", "query": f"q{n}", "at": f"2026-03-01T09:00:0{n}Z"} for n in (1, 2, 3)]
    for name, lines in (("queries", queries), ("clicks", clicks)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "join.toml").write_text(SHAPED)
    (tmp_path / "fixed.toml").write_text(SHAPED.replace('"bot"', '"robot"').replace("50", "5"))
    shell = Shell(tmp_path, {})
    shell.run(
        "join", Run(0, "photon join --config join.toml --primary queries --foreign clicks --output out --once\n")
    )
    page = "correct-records.md"
    for block in steps(page, (DIRECTORY / page).read_text()):
        assert isinstance(block, Run)
        shell.run(page, block)
    assert {each.foreign["what"] for each in photon.read(tmp_path / "corrections")} == {"replaced", "withdrawn"}
