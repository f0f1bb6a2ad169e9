"""Photon: totals or windows of a key, for ``photon compute run``; see ``bench/computations.py``."""

import os

from photon.computing import MINUTE_NS, Computation, Context, Record, Timer, Topology
from photon.computing.windows import Windows, count, sum_of, tumbling

END_NS = 1 << 62  # behind all records: called at the end


class Totals(Computation):
    def process_record(self, ctx: Context, record: Record) -> None:
        state = ctx.state
        state["n"] = state.get("n", 0) + 1
        state["cents"] = state.get("cents", 0) + record.value["cents"]
        ctx.set_timer("end", END_NS)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        ctx.produce("found", {"key": ctx.key, "from_ns": 0, **ctx.state})


topology = Topology("bench")
log = topology.log(os.environ["BENCH_RECORDS"], format="jsonl", key="key", time={"field": "at", "unit": "us"})
if os.environ["BENCH_TASK"] == "totals":
    topology.add(Totals(), {log: "key"}, ["found"])
else:
    aggregates = {"n": count(), "cents": sum_of(lambda record: record.value["cents"])}
    topology.add(Windows("found", tumbling(MINUTE_NS), aggregates), {log: "key"})
topology.publish("found", os.environ["BENCH_OUTPUT"])
