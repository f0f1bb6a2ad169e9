"""A chain of operators against the engine: the same input, outputs and state; and Spark's limitations."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import msgspec
import pytest

from photon.computing import Record
from photon.computing.errors import ComputingError
from photon.computing.testkit import Step, run_topology
from photon.computing.wire import ENDED_NS, Watermark
from photon.spark.computing.operator import Operator
from photon.spark.computing.plan import FAULT, PUBLISHED, items_of
from tests.unit.spark.computing.fake_spark import FakeSpark

SECOND = 1_000_000_000
CODE = """\
from photon.computing import SECOND_NS, Computation, Topology, seconds


class Window(Computation):
    def process_record(self, ctx, record):
        end = seconds(record.time_ns) + SECOND_NS
        if ctx.is_late(end):
            ctx.produce("late", {"key": ctx.key, "at": record.time_ns})
            return
        ctx.state[end] = ctx.state.get(end, 0) + record.value["n"]
        ctx.set_timer("end", end)
        if record.value["n"] % 7 == 0:
            ctx.cancel_timer("end", end)
            ctx.set_timer("two", end + SECOND_NS // 4)
            ctx.set_timer("past", record.time_ns - 9 * SECOND_NS)

    def process_timer(self, ctx, timer):
        if timer.tag == "past":
            ctx.produce("late", {"past": timer.time_ns})
            return
        end = timer.time_ns - (SECOND_NS // 4 if timer.tag == "two" else 0)
        if end in ctx.state:
            made = {"key": ctx.key, "end": end, "sum": ctx.state.pop(end), "waiting": timer.waiting}
            ctx.produce("windows", made)


class Total(Computation):
    def process_record(self, ctx, record):
        end = record.value["end"]
        if ctx.is_late(end + SECOND_NS):
            ctx.produce("behind", {"end": end, "sum": record.value["sum"]})
            return
        ctx.state["sum"] = ctx.state.get("sum", 0) + record.value["sum"]
        ctx.set_timer("end", end + SECOND_NS)

    def process_timer(self, ctx, timer):
        said = [ctx.watermark_ns, timer.waiting]
        ctx.produce("totals", {"end": ctx.key, "sum": ctx.state.pop("sum", 0), "said": said})


topology = Topology("test")
raw = topology.source("raw")
topology.add(Window(), {raw: lambda record: record.value["k"]}, ["windows", "late"])
topology.add(Total(), {"windows": lambda record: str(record.value["end"])}, ["totals", "behind"])
for stream in ("windows", "late", "totals", "behind"):
    topology.publish(stream, stream)
"""


# Some keys are put aside: what computations after it wait for.
FAULTY = CODE.replace("end = seconds", 'assert record.value["n"] != 13\n        end = seconds', 1)
EXACT = re.sub(r"(topology.add.*)\)", r'\1, "exact")', FAULTY)


MORE = """\
from photon.computing import SECOND_NS, Computation, Topology
from photon.computing.windows import Windows, collect, count, session, tumbling


class Held(Computation):
    outputs = ("last", "sums")

    def process_record(self, ctx, record):
        sums, last = ctx.map_of("sums"), ctx.list_of("last")
        n = record.value["n"]
        sums[n % 3] = sums.get(n % 3, 0) + n
        last.append(n)
        if len(last) > 3:
            ctx.produce("last", [ctx.key, last.pop_first(), list(last)])
        ctx.set_timer("end", record.time_ns)

    def process_timer(self, ctx, timer):
        sums = ctx.map_of("sums")
        ctx.produce("sums", [ctx.key, sorted(sums.items()), list(ctx.list_of("last"))])
        sums.clear()


n = lambda record: record.value["n"]
topology = Topology("more")
raw = topology.source("raw")
for each in (
    Windows("minutes", tumbling(SECOND_NS), {"n": count()}, lateness_ns=SECOND_NS, early_ns=SECOND_NS // 3),
    Windows("visits", session(SECOND_NS), {"ns": collect(n)}, lateness_ns=2 * SECOND_NS),
    Held(),
):
    topology.add(each, {raw: "k"})
    for stream in each.outputs:
        topology.publish(stream, stream)
"""


def produced(rows: list) -> list[str]:
    return sorted(
        repr((item.stream, item.time_ns, msgspec.msgpack.decode(item.value)))
        for row in rows
        if row.to == PUBLISHED
        for item in items_of(row["items"])
    )


@pytest.mark.parametrize(
    "code", [CODE, MORE, FAULTY, EXACT], ids=["timers", "windows and entries", "put aside", "put aside, exact"]
)
@pytest.mark.parametrize("seed", range(12))
def test_it_is_as_the_engine_does_it(tmp_path: Path, seed: int, code: str) -> None:
    chance = random.Random(seed)
    file = tmp_path / "test.py"
    file.write_text(code)
    spark, steps, rows = FakeSpark(file), list[Step](), []
    base, now = 1_000 * SECOND, 0
    for n in range(12):
        records = []
        for _ in range(chance.randrange(0, 12)):
            at = base + now + chance.randrange(-SECOND, 5 * SECOND)  # some are late
            line = json.dumps({"k": chance.choice("abcé"), "n": chance.randrange(30), "at": at}).encode()
            records.append((at, line))
        records.sort()
        now += chance.choice([0, SECOND // 10, SECOND, 3 * SECOND])
        waiting = 0 if code is EXACT else chance.randrange(3)
        mark = Watermark(base + now, base + now, waiting) if n < 11 else Watermark(ENDED_NS, ENDED_NS)
        steps += [Record(json.loads(line), at, "raw") for at, line in records]
        steps.append(mark)
        rows += spark.batch("raw", records, mark.percentile_ns, mark.waiting)
    ran = run_topology(spark.topology, {"raw": steps})
    expected = sorted(
        repr((stream, each.time_ns, each.value)) for stream, some in ran.produced.items() for each in some
    )
    assert produced(rows) == expected
    assert spark.left == bool(ran.faults)


def faulty(file: Path, code: str) -> None:
    file.write_text(
        "from photon.computing import Computation, Topology\n\n\nclass Sum(Computation):\n"
        f"    def process_record(self, ctx, record):\n        {code}\n"
        "        ctx.state['sum'] = ctx.state.get('sum', 0) + record.value['n']\n"
        "        ctx.set_timer('end', 5_000_000_000)\n\n"
        "    def process_timer(self, ctx, timer):\n        ctx.produce('sums', ctx.state.pop('sum'))\n\n\n"
        "topology = Topology('test')\nraw = topology.source('raw')\n"
        "topology.add(Sum(), {raw: lambda record: record.value['k']}, ['sums'])\ntopology.publish('sums', 'sums')\n"
    )


def records(*numbers: int, key: str = "a") -> list[tuple[int, bytes]]:
    return [(SECOND, b'{"k":"%s","n":%d}' % (key.encode(), n)) for n in numbers]


def test_what_fails_is_put_aside_and_tried_again_in_the_next_run(tmp_path: Path) -> None:
    file = tmp_path / "test.py"
    faulty(file, "if record.value['n'] == 2: raise ValueError('two')")
    spark = FakeSpark(file)
    first = spark.batch("raw", records(1, 2, 3) + records(5, key="b"), SECOND)
    (told,) = [row["items"].decode() for row in first if row.to == FAULT]
    assert told.startswith("computation sum, key 'a': ValueError: two (")
    assert produced(spark.batch("raw", records(4), 6 * SECOND)) == ["('sums', 5000000000, 5)"]  # of b
    faulty(file, "pass")
    spark.begin("two")
    repaired = produced(spark.batch("raw", [], 7 * SECOND))  # all of them under the watermark of then, and its timer
    assert repaired == ["('sums', 5000000000, 10)"]
    assert not spark.left


def test_a_number_that_no_float_holds_harms_its_key_only(tmp_path: Path) -> None:
    file = tmp_path / "test.py"
    faulty(file, "pass")
    wrong = [(SECOND, b'{"k":"b","n":1e999}')]
    rows = FakeSpark(file).batch("raw", records(1) + wrong, 6 * SECOND)
    (told,) = [row["items"].decode() for row in rows if row.to == FAULT]
    assert told.startswith("computation sum, key 'b': TypeError")


def test_a_window_waits_for_records_put_aside(tmp_path: Path) -> None:
    """The exact watermark of what follows from them stays until they have run: as the engine's does."""
    file = tmp_path / "test.py"
    code = (
        "from photon.computing import SECOND_NS, Topology\n"
        "from photon.computing.windows import Each, Windows, collect, tumbling\n\n"
        "topology = Topology('test')\nraw = topology.source('raw')\n"
        "topology.add(Each('halves', lambda r: [6 // r.value['n']]), {raw: 'k'}, (), 'exact')\n"
        "all_of = Windows('all', tumbling(SECOND_NS), {'n': collect(lambda r: r.value)})\n"
        "topology.add(all_of, {'halves': lambda r: 'all'}, (), 'exact')\n"
        "topology.publish('all', 'all')\ntopology.publish('halves.errors', 'errors')\n"
    )
    file.write_text(code)
    spark = FakeSpark(file)
    (error,) = produced(spark.batch("raw", records(0) + records(3, key="b"), SECOND))
    assert error.startswith("('halves.errors', 1000000000, {'key': 'a', 'reason': 'ZeroDivisionError")
    assert produced(spark.batch("raw", [], 3 * SECOND)) == []
    file.write_text(code.replace("6 // ", "6 + "))
    spark.begin("two")
    assert produced(spark.batch("raw", [], 4 * SECOND)) == [
        "('all', 1999999999, {'key': 'all', 'from_ns': 1000000000, 'to_ns': 2000000000, 'waiting': 0, 'n': [2, 6]})"
    ]
    assert not spark.left


def test_what_is_put_aside_at_the_end_of_time_is_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "test.py"
    faulty(file, "if record.value['n'] == 2: raise ValueError('two')")
    spark = FakeSpark(file)
    spark.batch("raw", records(2), SECOND)
    assert produced(spark.batch("raw", [], ENDED_NS)) == []
    faulty(file, "pass")
    spark.begin("two")
    assert produced(spark.batch("raw", [], ENDED_NS, more_ms=1)) == ["('sums', 5000000000, 2)"]


def test_a_record_without_a_key_ends_the_run(tmp_path: Path) -> None:
    file = tmp_path / "test.py"
    file.write_text(CODE.replace('str(record.value["end"])', '""'))
    spark = FakeSpark(file)
    with pytest.raises(ComputingError, match="computation total: its key is '', which must be a non-empty str"):
        spark.batch("raw", records(1), 9 * SECOND)


def test_a_timer_of_the_wall_clock_that_nobody_saw_ends_the_run(tmp_path: Path) -> None:
    file = tmp_path / "test.py"
    faulty(file, "getattr(ctx, 'set_' + 'wall_timer')('x', 1)")
    with pytest.raises(ComputingError, match="computation sum, key 'a': has set a wall-clock timer"):
        FakeSpark(file).batch("raw", records(1), SECOND)


def test_spark_that_is_elsewhere_ends_the_run(tmp_path: Path) -> None:
    file = tmp_path / "test.py"
    file.write_text(CODE)
    spark = FakeSpark(file)
    spark.batch("raw", records(1), SECOND)
    with pytest.raises(ComputingError, match="a batch came without a watermark"):
        list(spark._operator(Operator(spark._plan, 0), spark._handles[0], [], 60_000))
