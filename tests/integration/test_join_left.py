"""`unmatched = "inline"`: each foreign event once among the joined records, with its primary event or without one."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

import photon as library
from photon.lab.demo.check import records
from tests.integration.commands import photon, until
from tests.integration.join_logs import Logs
from tests.integration.verified_site import SLOT, site_in

EPOCH = 1_760_000_000
DOCS = Path(__file__).parents[2] / "docs" / "joins.md"
SIDES = """
[join.pay.primary]
format = "csv"
key = "order"
time = { field = "at", unit = "s" }

[join.pay.foreign]
format = "jsonl"
key = "order"
id = "id"
time = { field = "at", unit = "s" }
"""


class Payments(Logs):
    """Every third payment has no order, every fifth order is two hours older than its payment."""

    def __init__(self, base: Path, kind: str, payments: int = 300) -> None:
        super().__init__(base, clicks=1)
        self.payments = payments
        self.say(kind)
        old = {n: 7200 * (n % 5 == 0) for n in range(payments)}
        orders = [f"o{n},{EPOCH + n - old[n]},{n}\n" for n in range(payments) if n % 3]
        (self.primary / "orders.csv").write_text(f"order,at,amount\n{''.join(orders)}")

    def say(self, kind: str) -> None:
        self.config.write_text(f"[join.pay]\n{kind}\n{SIDES}")

    def pay(self, begin: int, end: int) -> None:
        with (self.foreign / "payments.jsonl").open("a") as log:
            log.writelines(json.dumps(self.payment(n)) + "\n" for n in range(begin, end))

    def payment(self, n: int) -> dict[str, Any]:
        return {"id": f"p{n}", "order": f"o{n}", "at": EPOCH + n}

    def found(self, kind: str = "joined") -> dict[str, tuple[Any, Any, str | None]]:
        said = records(self.output / kind)
        found = {each["event_id"]: (each.get("foreign"), each.get("primary"), each.get("reason")) for each in said}
        assert len(found) == len(list(records(self.output / kind)))
        return found

    def expected(self, *, bounds: bool = False) -> dict[str, tuple[Any, Any, str | None]]:
        out: dict[str, tuple[Any, Any, str | None]] = {}
        for n in range(self.payments):
            order, why = {"order": f"o{n}", "at": str(EPOCH + n), "amount": str(n)}, None
            if not n % 3:
                order, why = {}, "no primary event has this key"
            elif not n % 5 and bounds:
                order, why = {}, "the primary event is 2:00:00 older, and within.before is 1:00:00"
            elif not n % 5:
                order["at"] = str(EPOCH + n - 7200)
            out[f"p{n}"] = (self.payment(n), order or None, why)
        return out


def test_each_event_is_one_record_whatever_is_killed_and_however_the_setting_changes(tmp_path: Path) -> None:
    site = Payments(tmp_path, "")
    flags = ("--set", "clock.uncertainty=0.2", "--set", "limits.batch_events=20")
    step, draw = site.payments // 4, Random(7)
    for part in range(4):
        left = 'unmatched = "inline"\n' * (part != 1)
        site.say(f'unmatched_after = "1s"\nprimary_max_delay = "0s"\n{left}')
        with site.following(*flags) as running:
            site.pay(part * step, (part + 1) * step)
            time.sleep(2.0 + 2.0 * draw.random())
            running.kill()
    ended = site.once(*flags)
    assert ended.code == 0, ended.err
    joined, apart = site.found(), site.found("unmatched")
    assert joined.keys() | apart.keys() == site.expected().keys()
    assert not joined.keys() & apart.keys()
    assert joined == {event: each for event, each in site.expected().items() if event not in apart}
    missing = sum(1 for n in range(site.payments) if not n % 3)
    assert (ended.json["joined"], ended.json["unmatched"]) == (site.payments - missing, missing)
    assert site.once(*flags).json == ended.json


@pytest.mark.parametrize("match", ["first", "all", "latest"])
def test_all_kinds_of_join_and_bounds(tmp_path: Path, match: str) -> None:
    site = Payments(tmp_path, f'unmatched = "inline"\nmatch = "{match}"\nwithin = {{ before = "1h" }}\n', 30)
    site.pay(0, 30)
    ended = site.once()
    assert ended.code == 0, ended.err
    expected = site.expected(bounds=True)
    if match != "first":
        near = "no primary event of its key lies within its time bounds"
        expected = {
            event: (*each[:2], each[2] and each[2].replace(TOO_OLD, near)) for event, each in expected.items()
        }
    assert site.found() == expected
    assert site.found("unmatched") == {}
    assert ended.json["unpaired"] == (4 if match == "first" else 0)
    told = photon("explain", "p0", site.output, "-o", "json")
    story = json.loads(told.out)
    assert (story["verdict"], story["contradictions"]) == ("unmatched", []), told
    assert len(photon("read", site.output).out.splitlines()) == 30
    read = list(library.read(site.output))
    assert sum(each.primary is None for each in read) == 14
    table = library.read(site.output, flatten=True).to_arrow()
    assert table.column("primary_order").null_count == 14
    assert table.column("foreign_order").null_count == 0
    sunk = photon("sink", "parquet", site.output, "--into", tmp_path / "lake", "--columns", "flat")
    assert sunk.code == 0, sunk.err
    parquet = pytest.importorskip("pyarrow.parquet")
    [file] = (tmp_path / "lake").rglob("*.parquet")
    assert parquet.read_table(file).column("primary_order").null_count == 14


TOO_OLD = "the primary event is 2:00:00 older, and within.before is 1:00:00"


def test_python_says_it_in_one_word(tmp_path: Path) -> None:
    site = Payments(tmp_path, "", 6)
    site.pay(0, 6)
    pairs = library.join(
        site.primary, site.foreign, key="order", id="id", time={"field": "at", "unit": "s"}, unmatched="inline"
    )
    with pairs:
        found = {each.event_id: (each.foreign, each.primary, each.reason) for each in pairs}
        assert {each.kind for each in pairs} == {"joined"}
    assert found == site.expected()


def test_the_page_s_example_is_what_is_written(tmp_path: Path) -> None:
    def block(title: str) -> str:
        [text] = re.findall(rf"```{title}\n(.*?)```", DOCS.read_text(), re.DOTALL)
        return str(text)

    site = Logs(tmp_path, clicks=1)
    site.config.write_text(block("toml left"))
    (site.primary / "articles.csv").write_text(block("text left primary"))
    (site.foreign / "views.jsonl").write_text(block("text left foreign"))
    ended = site.once()
    assert ended.code == 0, ended.err
    written = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in records(site.output / "joined"))
    moment = re.compile(r',"joined_at":.*$', re.MULTILINE)
    assert moment.sub("", written) == moment.sub("", block("json left records"))


@pytest.mark.parametrize("side", ["primary", "foreign"])
def test_the_next_join_reads_them_too(tmp_path: Path, side: str) -> None:
    """They lack any key below ``primary``; one of the foreign record is there."""
    site = Payments(tmp_path, 'unmatched = "inline"\n', 6)
    site.pay(0, 6)
    assert site.once().code == 0
    for key, has in (("primary.order", [1, 2, 4, 5]), ("foreign.order", [0, 1, 2, 3, 4, 5])):
        own = 'format = "jsonl"\nkey = "order"\nid = "id"\ntime = { field = "at", unit = "s" }\n'
        tables = {side: f'join = "pay"\nkey = "{key}"\n'}
        other = "foreign" if side == "primary" else "primary"
        tables[other] = own if other == "foreign" else 'format = "jsonl"\nkey = "order"\n'
        chain = tmp_path / f"{key}.toml"
        chain.write_text(
            site.config.read_text() + "".join(f"[join.next.{name}]\n{table}" for name, table in tables.items())
        )
        out = tmp_path / f"{key}.out"
        logs = {side: site.output, other: site.foreign}
        ended = photon(
            "join", "--config", chain, "--join", "next", "--primary", logs["primary"], "--foreign", logs["foreign"],
            "--output", out, "--once", "-o", "json",
        )  # fmt: skip
        joined = sorted(each["event_id"] for each in records(out / "joined"))
        assert joined == [f"p{n}" for n in has], ended.err
        lost = [each["reason"] for each in records(out / ("rejected" if side == "foreign" else "unmatched"))]
        assert len(lost) == 6 - len(has)
        if side == "foreign":
            assert all("primary.order" in each for each in lost)


OWN = """
from photon.adapters.configured import ConfiguredAdapter
class Own(ConfiguredAdapter):
    def join(self, *pair):
        return super().join(*pair)
"""


def test_what_cannot_be_had_is_one_line(tmp_path: Path) -> None:
    site = Payments(tmp_path, 'unmatched = "inline"', 3)
    site.pay(0, 3)
    for more, said in (((), "add unmatched_after"), (("--once", "--keep-pending"), "use only one")):
        refused = photon(*site.arguments(*more))
        assert (refused.code, refused.err.count("\n")) == (2, 1), refused.err
        assert said in refused.err
    (tmp_path / "own.py").write_text(OWN)
    site.config.write_text('[join.pay]\nunmatched = "inline"\nadapter = "own.py:Own"\n[join.pay.options]\n')
    with site.config.open("a") as config:
        config.write(SIDES.replace("join.pay", "join.pay.options"))
    refused = site.once()
    assert (refused.code, refused.err.count("\n")) == (2, 1), refused.err
    assert "define unmatched_payload too" in refused.err
    site.say('unmatched = "both"')
    refused = site.once()
    assert (refused.code, refused.err.count("\n")) == (2, 1), refused.err
    assert not site.output.exists()


def test_a_deployment_s_verifier_finds_them_right_and_what_is_not_wrong(tmp_path: Path) -> None:
    def left(base: Path) -> None:
        file = base / "photon.toml"
        file.write_text(file.read_text().replace("[join.clicks]", '[join.clicks]\nunmatched = "inline"'))

    with site_in(tmp_path, prepare=left) as site:
        site.write(60, missing=10)
        until(lambda: len(site.ids()) >= 30, 120, "some are written")
        site.hold(f"joiner {SLOT}")
        site.release(f"joiner {SLOT}")
        until(site.settled, 120, "they are checked and cleared")
        assert site.alarms() == []
        ledger = json.loads(photon("status", "ledger", "--config", site.file, "-o", "json").out)["total"]
        assert (ledger["joined"], ledger["unmatched"]) == (50, 10)
        joined = site.output_of("joined")
        lines = joined.read_bytes().splitlines(keepends=True)
        assert len(lines) == 60
        assert sum(b'"primary":null' in line for line in lines) == 10
        site.kill_joiner()
        alone = next(line for line in lines if b'"primary":null' in line)
        with joined.open("ab") as file:
            file.write(alone.replace(b'"text":"text', b'"text":"another'))
        site.publish(joined)
        until(lambda: "differs" in {kind for kind, _ in site.alarms()}, 120, "what its log does not give is told")
