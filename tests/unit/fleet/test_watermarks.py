"""What is said of a state's watermarks besides the last pair."""

from __future__ import annotations

from pathlib import Path

from photon.fleet.watermarks import of_state
from photon.outputs.cursor import Cursor
from photon.outputs.watermarks import JOURNAL, Pair


def test_since_when_each_of_the_two_has_stood_where_it_is(tmp_path: Path) -> None:
    found = of_state("east", "clicks", tmp_path)
    assert (found.pair, found.percentile_moved_ns, found.exact_moved_ns) == (None, 0, 0)
    times = [(1, 5, 6), (2, 5, 7), (3, 5, 8), (4, 5, 8)]
    pairs = [Pair(at_ns, exact_ns, percentile_ns, 0, Cursor()) for at_ns, exact_ns, percentile_ns in times]
    path = tmp_path / JOURNAL
    path.parent.mkdir()
    path.write_bytes(b"".join(pair.encode() + b"\n" for pair in pairs))
    found = of_state("east", "clicks", tmp_path)
    assert (found.pair, found.percentile_moved_ns, found.exact_moved_ns) == (pairs[-1], 3, 1)
