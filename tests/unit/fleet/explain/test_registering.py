"""Events that a joiner has logged and the registry has not answered are found by id and by place."""

from __future__ import annotations

import numpy as np
import pytest

from photon.fleet.explain.question import question_of
from photon.fleet.explain.service import registering
from photon.idregistry.api import Kind, token_of
from photon.joiner.core import OpenRecord, SlotCore
from photon.joiner.rows import Rows
from tests.unit.fleet.explain.test_outputs import line

TOKEN = token_of(1, 0)


def rows(*ids: str) -> Rows:
    n = len(ids)
    digests = b"".join(each.encode().ljust(16, b".") for each in ids)
    zeros = np.zeros(n, np.uint32)
    return Rows(
        digests, np.arange(n, dtype=np.int64), np.full(n, TOKEN, np.uint64),
        np.full(n, int(Kind.UNMATCHED), np.uint8), zeros, zeros, [line(each, 10 * at) for at, each in enumerate(ids)],
    )  # fmt: skip


@pytest.mark.parametrize("text", ["id1", "c.log:10"])
def test_a_row_of_the_core_until_it_is_decided(text: str) -> None:
    core = SlotCore(1)
    number, _ = core.submit(rows("id0", "id1", "id2"), deadline=10.0)
    (found,) = registering("s1", core.open_records(), question_of(text))
    assert (found.kind, found.slot, found.token, found.durable) == ("unmatched", "s1", f"{TOKEN:016x}", False)
    assert (found.event_id, found.source_file, found.source_offset) == (b"id1", "c.log", 10)
    core.redo_synced(number)
    assert registering("s1", core.open_records(), question_of(text))[0].durable
    assert not registering("s1", core.open_records(), question_of("id9"))


def test_another_records_payload_is_not_taken_for_it() -> None:
    other = OpenRecord(line("other", 0, foreign='{"event_id":"wanted"}'), int(Kind.JOINED), TOKEN, True)
    assert not registering("s1", [other], question_of("wanted"))
