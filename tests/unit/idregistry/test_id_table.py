"""The flat table against a dict, whole batches at a time."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pytest

from photon.idregistry.api import Digester
from photon.idregistry.core.id_bucket import CLEARED, OWNED, REOPENED
from photon.idregistry.core.id_table import Entry, IdTable, digest_columns
from tests.unit.idregistry.shard import thawed

Batch = tuple[bytes, np.ndarray, np.ndarray]  # digests, times, tokens


def batches(seed: int, number: int, universe: int, span: int, most: int = 900) -> list[Batch]:
    """Batches that meet the same ids again and again, within and across batches, in many buckets."""
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    crowded = rng.integers(0, 64, universe, dtype=np.uint64)  # first halves that collide in the index
    whole = rng.integers(0, 2**63, universe, dtype=np.uint64)
    lo = np.where(rng.random(universe) < 0.1, crowded, whole)
    digests = np.stack([lo, np.arange(universe, dtype=np.uint64)], axis=1)
    times = rng.integers(-span, span, universe)
    out = []
    for _ in range(number):
        pick = rng.integers(0, universe, int(rng.integers(1, most)))
        out.append((digests[pick].tobytes(), times[pick], rng.integers(1, 4, len(pick)).astype(np.uint64)))
    return out


@pytest.mark.parametrize(
    ("seed", "span", "number", "most"),
    [(1, 100, 30, 900), (2, 5000, 30, 900), (3, 60_000, 30, 900), (4, 100, 400, 24)],
)
def test_batches_equal_a_dict(seed: int, span: int, number: int, most: int) -> None:
    """Small ones go into the index one by one."""
    table = IdTable(bucket_bits=10)
    model: dict[bytes, list[int]] = {}  # digest -> [state, token]
    rng = np.random.default_rng(seed + 100)
    for digests, times, tokens in batches(seed, number, 5_000, span, most):
        n = len(times)
        lo, hi = digest_columns(digests)
        given = tokens.tolist()
        keys = [digests[16 * i : 16 * i + 16] for i in range(n)]
        if rng.random() < 0.3:
            met = table.clear(lo, hi, tokens)
            states, held = met.states.tolist(), met.tokens.tolist()
            for i, key in enumerate(keys):
                state, token = model.get(key, [0, 0])
                assert (states[i], held[i] if state else 0) == (state, token)
                if state == OWNED and token == given[i]:
                    model[key][0] = CLEARED
            continue
        may_add = rng.random(n) < 0.9
        met = table.add(lo, hi, times, tokens, np.ones(n, np.uint8), np.arange(n, dtype=np.uint32), None, may_add)
        states, held, added, may = met.states.tolist(), met.tokens.tolist(), met.added.tolist(), may_add.tolist()
        for i, key in enumerate(keys):
            state, token = model.get(key, [0, 0])
            assert (states[i], added[i]) == (state, state == 0 and may[i]), i
            if state:
                assert held[i] == token
            elif may[i]:
                model[key] = [OWNED, given[i]]
        assert len(table) == len(model)
        table = thawed(table.freeze(), 10) if rng.random() < 12 / number else table


def test_one_id_at_a_time() -> None:
    table = IdTable(bucket_bits=10)
    entry = Entry(REOPENED, 2**64 - 1, 3, 2**32 - 1, 2**31)
    assert table.get(b"d" * 16) is None
    table.put(b"d" * 16, -7, entry)
    assert table.get(b"d" * 16) == entry
    assert table.get(b"e" * 16) is None
    table.put(b"d" * 16, -7, Entry(CLEARED, 5, 1, 0, 0))
    assert table.get(b"d" * 16) == Entry(CLEARED, 5, 1, 0, 0)
    assert table.collect(0) == 1
    assert len(table) == len(table.bucket_numbers()) == 0


def test_collection_touches_whole_buckets_below() -> None:
    table = IdTable(bucket_bits=4)
    for time in range(64):
        state = (OWNED, CLEARED, REOPENED)[time % 3]
        table.put(time.to_bytes(16, "little"), time, Entry(state, time + 1, 1, 0, time % 3))
    assert table.collect(40) == 11  # buckets 0..15 and 16..31; 32..47 is not wholly below
    assert table.collect(40) == 0
    for time in range(64):
        entry = table.get(time.to_bytes(16, "little"))
        if time % 3 == 1 and time < 32:
            assert entry is None
        else:
            assert entry == Entry((OWNED, CLEARED, REOPENED)[time % 3], time + 1, 1, 0, time % 3)


def test_bucket_width_is_bounded() -> None:
    with pytest.raises(ValueError, match="bucket_bits"):
        IdTable(bucket_bits=49)


@pytest.mark.parametrize("event_id", [b"", b"c1", b"x" * 123, b"x" * 5000])
def test_an_id_is_known_by_a_keyed_hash_of_the_join_and_itself(event_id: bytes) -> None:
    key, name = b"k" * 32, b"clicks"
    whole = len(name).to_bytes(4, "little") + name + event_id
    expected = blake2b(whole, digest_size=16, key=key).digest()
    digester = Digester(key, "clicks")
    assert digester.digest(event_id) == expected
    assert digester.digests([b"other", event_id])[16:] == expected
    assert digester.digests([]) == b""
