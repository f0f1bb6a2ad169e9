"""The recipes over growing logs, killed with kill -9 at any moment, against what plain Python makes of the lines."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import photon
from tests.integration.commands import children, drawn_seed, running, until
from tests.integration.commands import photon as command

KILLS = 12 if os.environ.get("PHOTON_FULL") else 2
LINES = 1_500
WAIT_S = 120.0
HOUR_S = 3600
WORDS = ["to", "be", "or", "not", "that", "is", "the", "question"]
Lines = list[dict[str, Any]]


def _at(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["at"]).timestamp()


def _words(rng: random.Random) -> dict[str, Any]:
    return {"text": " ".join(rng.choice(WORDS) for _ in range(4))}


def _clicks(rng: random.Random) -> dict[str, Any]:
    return {"user": f"u{rng.randrange(5)}", "page": f"/{rng.randrange(1 << 30)}"}


def _paid(rng: random.Random) -> dict[str, Any]:
    return {"advertiser": f"a{rng.randrange(5)}", "cents": rng.randrange(100)}


def _check_words(out: Path, lines: Lines) -> None:
    truth = Counter((word, int(_at(line) // 60)) for line in lines for word in line["text"].split())
    found = [each.foreign for each in photon.read(out / "counts")]
    assert sorted((each["key"], each["from_ns"] // 60_000_000_000, each["n"]) for each in found) == sorted(
        (word, minute, n) for (word, minute), n in truth.items()
    )


def _check_top(out: Path, lines: Lines) -> None:
    _check_words(out, lines)
    minutes = defaultdict[int, Counter[str]](Counter)
    for line in lines:
        minutes[int(_at(line) // 60)].update(line["text"].split())
    found = {each.foreign["from_ns"] // 60_000_000_000: each.foreign["words"] for each in photon.read(out / "top")}
    assert found == {
        minute: sorted(([n, word] for word, n in counted.items()), reverse=True)[:3]
        for minute, counted in minutes.items()
    }


def _check_visits(out: Path, lines: Lines) -> None:
    truth: list[tuple[str, float, set[str]]] = []
    for line in sorted(lines, key=lambda line: (line["user"], _at(line))):
        if truth and truth[-1][0] == line["user"] and _at(line) - truth[-1][1] < 1800:
            truth[-1] = (line["user"], _at(line), truth[-1][2] | {line["page"]})
        else:
            truth.append((line["user"], _at(line), {line["page"]}))
    found = [each.foreign for each in photon.read(out / "visits")]
    assert all(each["clicks"] == len(each["pages"]) for each in found)
    assert sorted((each["key"], sorted(each["pages"])) for each in found) == sorted(
        (user, sorted(pages)) for user, _, pages in truth
    )


def _check_pairs(out: Path, lines: Lines) -> None:
    queries = {line["q"] for line in lines if "terms" in line}
    clicks = {line["click"]: line["q"] for line in lines if "click" in line}
    found = [each.foreign for each in photon.read(out / "pairs")]
    assert sorted((each["click"]["click"], each["query"]["q"]) for each in found) == sorted(
        (click, q) for click, q in clicks.items() if q in queries
    )
    alone = sorted(each.foreign["click"] for each in photon.read(out / "alone"))
    assert alone == sorted(click for click, q in clicks.items() if q not in queries)


def _check_bill(out: Path, lines: Lines) -> None:
    assert not list(photon.read(out / "bill.late"))
    truth = Counter[tuple[str, int]]()
    for line in lines:
        truth[line["advertiser"], int(_at(line) // HOUR_S)] += line["cents"]
    bills: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for stream in ("bill", "bill.corrections"):
        for each in photon.read(out / stream):
            bills[each.foreign["key"], each.foreign["from_ns"] // (HOUR_S * 10**9)].append(each.foreign)
    assert {hour: max(found, key=lambda each: each["clicks"])["cents"] for hour, found in bills.items()} == truth
    assert all(sum("replaces" not in each for each in found) == 1 for found in bills.values())
    assert any(len(found) > 1 for found in bills.values()), "nothing came late"


def _stamped(rng: random.Random, line: dict[str, Any], spread_s: float) -> dict[str, Any]:
    return {"at": datetime.fromtimestamp(time.time() - rng.uniform(0, spread_s), UTC).isoformat(), **line}


MADE: dict[str, tuple[Callable[[random.Random], dict[str, Any]], Callable[[Path, Lines], None], str]] = {
    "word_count": (_words, _check_words, ""),
    "top_words": (_words, _check_top, ""),
    "visits": (_clicks, _check_visits, ""),
    "bill": (_paid, _check_bill, ", within_ns=1"),  # a promise that most lines break
}


@pytest.mark.parametrize("recipe", [*MADE, "pairs"])
def test_kill_9_leaves_no_line_out_and_doubles_none(tmp_path: Path, recipe: str) -> None:
    rng = random.Random(drawn_seed())
    lines, logs = list[dict[str, Any]](), ["logs"]
    (tmp_path / "logs").mkdir()
    if recipe == "pairs":
        logs.append("more")
        (tmp_path / "more").mkdir()
        check, promise = _check_pairs, ""
        queries = [{"q": f"q{n}", "terms": "rain"} for n in range(LINES // 2)]
        clicks = [{"q": f"q{n}", "click": f"c{n}"} for n in range(LINES // 4, LINES)]
        made = [_stamped(rng, line, 600) for line in rng.sample(queries + clicks, len(queries) + len(clicks))]
    else:
        draw, check, promise = MADE[recipe]
        made = [_stamped(rng, draw(rng), 10 * HOUR_S) for _ in range(LINES)]
    file = tmp_path / "recipe.py"
    file.write_text(
        f"from photon.computing.examples.recipes import {recipe}\n\n"
        f"topology = {recipe}({', '.join(map(repr, logs))}, 'out'{promise})\n"
    )
    run = ("compute", "run", file, "--processes", "2")
    for n in range(KILLS + 1):
        some, made = made[: len(made) // (KILLS + 1 - n)], made[len(made) // (KILLS + 1 - n) :]
        _write(tmp_path, some[: len(some) // 2])
        with running(*run, log=tmp_path / "log") as process:
            state = tmp_path / ".photon-compute"
            began = time.time()
            until(lambda: process.poll() is not None or _said(state) > began, WAIT_S, "it computes")  # noqa: B023
            assert process.poll() is None, (tmp_path / "log").read_text()
            _write(tmp_path, some[len(some) // 2 :])
            time.sleep(rng.uniform(0.0, 2.0))
            for pid in (process.pid, *children(process.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        lines += some
    assert not made
    done = command(*run, "--once", "-o", "json", timeout=2 * WAIT_S)
    assert done.code == 0, done.err
    check(tmp_path / "out", lines)


def _write(base: Path, lines: Lines) -> None:
    for line in lines:
        side = "more" if "click" in line else "logs"
        with open(base / side / f"{len(line['at']) % 2}-{hash(line['at']) % 3}.log", "a") as file:
            file.write(json.dumps(line) + "\n")


def _said(state: Path) -> float:
    return max((path.stat().st_mtime for path in state.glob("*/*.status.json")), default=0.0)
