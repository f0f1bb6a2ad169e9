"""The first and last event time of lines, as a reader of the records finds them."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from photon.adapters.envelope import Envelope
from photon.outputs.event_times import EventTimes
from tests.lines import event_of, undone_lines
from tests.unit.spark.test_output_lines import Joined, joined

TIMES = st.integers(-(2**63), 2**63 - 1)
PAYLOADS = (b"{}", b'{"event_time_ns":5,"x":1}', b'{"event_time_ns":"5"}', b'["\\"event_time_ns\\":7,"]')
IDS = (b"e", b'"event_time_ns":3,', b"\xff")


@given(
    st.lists(st.tuples(TIMES, st.sampled_from(PAYLOADS), st.sampled_from(IDS), st.booleans())), st.integers(1, 400)
)
def test_the_span_is_that_of_the_lines(rows: list[tuple[int, bytes, bytes, bool]], piece: int) -> None:
    lines = []
    for time_ns, payload, name, is_joined in rows:
        event = event_of(event_id=name, key=name, event_time_ns=time_ns, record=payload)
        if is_joined:
            lines.append(joined(Joined(payload, payload), event) + b"\n")
        else:
            lines += undone_lines(Envelope(), [event], ["why"], token=1, at_ns=0)
    assert all(json.loads(line)["event_time_ns"] == row[0] for line, row in zip(lines, rows, strict=True))
    times, data = EventTimes(), b"".join(lines)
    for at in range(0, len(data), piece):
        times.add(data[at : at + piece])
    own = [row[0] for row in rows]
    assert times.span() == ((min(own), max(own)) if own else (None, None))


def test_a_line_without_a_time_leaves_the_span_open() -> None:
    times = EventTimes()
    times.add(joined(Joined(b"{}", b"{}")) + b'\n{"reason":"why","record":"{\\"event_time_ns\\":5,}"}\n')
    assert times.span() == (None, None)
