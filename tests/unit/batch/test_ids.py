"""Ids and their answers on the wire: they arrive unchanged, and nothing else gets in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from photon.batch.ids import Ids, IdsError
from photon.batch.verdicts import Verdicts


def ids(first: int, n: int, generations: list[int] | None = None) -> Ids:
    rows = np.arange(first, first + n)
    return Ids(
        b"".join(int(row).to_bytes(16, "big") for row in rows),
        rows * 1_000,
        (rows + (1 << 40)).astype(np.uint64),
        np.ones(n, np.uint8),
        rows.astype(np.uint32),
        None if generations is None else np.array(generations, np.uint32),
    )


def columns(of: Ids) -> tuple[Any, ...]:
    generations = None if of.generations is None else of.generations.tolist()
    return of.digests, of.times.tolist(), of.tokens.tolist(), of.kinds.tolist(), of.tags.tolist(), generations


@pytest.mark.parametrize("generations", [None, [0, 7, 0]])
def test_what_travels_is_what_was_there(generations: list[int] | None) -> None:
    rows = ids(3, 3, generations)
    assert columns(Ids.decode(**Ids.encode([rows]))) == columns(rows)
    taken = Ids.decode(**Ids.encode([rows.take(np.array([0, 2]))]))
    assert taken.times.tolist() == [3_000, 5_000]
    assert taken.digests == rows.digests[:16] + rows.digests[32:]


def test_parts_follow_one_another_and_generations_of_some_are_zeros_for_the_others() -> None:
    whole = Ids.decode(**Ids.encode([ids(1, 2), ids(3, 1, [7])]))
    assert columns(whole) == columns(ids(1, 3, [0, 0, 7]))
    assert Ids.encode([ids(1, 2, [0, 0])])["generations"] == b""
    assert Ids.encode([]) == Ids.encode_cleared([]) == {}


def test_a_clear_names_no_more_than_its_tokens() -> None:
    named = Ids.encode_cleared([ids(1, 2)])
    assert list(named) == ["digests", "times", "tokens"]
    assert Ids.decode(**named).tags.tolist() == [0, 0]


@pytest.mark.parametrize("column", ["digests", "times", "tokens", "kinds", "tags", "generations"])
def test_columns_of_other_sizes_are_refused(column: str) -> None:
    whole = Ids.encode([ids(1, 2, [1, 2])])
    for changed in (whole[column][:-1], whole[column] + b"x", whole[column] * 2):
        with pytest.raises(IdsError, match="bytes"):
            Ids.decode(**{**whole, column: changed})
    with pytest.raises(IdsError, match=r"times: 8 bytes for 0 ids"):
        Ids.decode(b"", bytes(8))


def test_numbers_travel_little_endian_whatever_they_are_in_memory() -> None:
    rows = Ids(
        bytes(32),
        np.array([1, 2], ">i8"),
        np.arange(4, dtype=np.uint64)[::2],
        np.ones(2, np.uint8),
        np.zeros(2, np.uint32),
    )
    assert Ids.encode([rows])["times"] == bytes([1, *bytes(7), 2, *bytes(7)])
    assert Ids.encode([rows])["tokens"] == bytes([0, *bytes(7), 2, *bytes(7)])


def test_parts_of_verdicts_number_their_own_datacentres() -> None:
    whole = Verdicts.plain(np.array([1, 2, 3, 4], np.uint8), ("a",))
    part = Verdicts.blank(2, 9, ("b", "a"))
    part.owner_datacentres[:] = [0, 1]
    put = whole.put([(np.array([1, 3]), part)])
    assert put.outcomes.tolist() == [1, 9, 3, 9]
    assert [put.datacentres[at] for at in put.owner_datacentres.tolist()] == ["a", "b", "a", "a"]
    assert whole.outcomes.tolist() == [1, 2, 3, 4]
    assert put.says(9)
    assert not put.says(4)
    assert whole.put([]).outcomes.tolist() == [1, 2, 3, 4]
    assert whole.take(slice(0, 2)).put([(np.arange(2), part)]) is part
