"""The command codec: what goes in comes out, and nothing else gets in."""

from __future__ import annotations

import msgspec
import pytest

from photon.idregistry.core import commands as c
from tests.unit.idregistry.model import ALL_OF_TIME, Row, batch

GOOD = batch([Row(1), Row(2)])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"digests": b"x" * 33}, "not a multiple of 16"),
        ({"digests": b"x" * 16}, "callers"),
        ({"times": b"x" * 8}, "times"),
        ({"tokens": b"x" * 15}, "tokens"),
        ({"tokens": bytes(16)}, "without an incarnation"),
        ({"kinds": b"\x01"}, "kinds"),
        ({"kinds": b"\x01\x05"}, "kinds"),
        ({"tags": b""}, "tags"),
        ({"generations": b"xxxx"}, "generations"),
        ({"callers": [(1, 3)]}, "callers"),
        ({"callers": [(0, 2)]}, "not a registry command"),
        ({"callers": [(1 << 24, 2)]}, "not a registry command"),
        ({"clear_tokens": b"x" * 8}, "clear_tokens"),
    ],
)
def test_sizes_are_checked(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(c.CommandError, match=complaint):
        c.decode_shard(c.encode(msgspec.structs.replace(GOOD, **change)))


def test_an_entry_has_a_greatest_size() -> None:
    with pytest.raises(c.CommandError, match="ids"):
        c.decode_shard(c.encode(c.Batch(clear_digests=bytes(16 * (c.MAX_ENTRY_IDS + 1)))))
    with pytest.raises(c.CommandError, match="bytes"):
        c.encode(c.Batch(clear_digests=bytes(c.COMMAND_BYTES_MAX)))
    n = c.MAX_ENTRY_IDS
    assert len(c.encode(batch([Row(1, generation=1)] * n, [(1, n)]))) < c.COMMAND_BYTES_MAX


@pytest.mark.parametrize("ranges", [((0, 0),), ((0, 5), (4, 9)), ((5, 9), (0, 5))])
def test_ranges_are_in_order(ranges: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(c.CommandError, match="range"):
        c.decode_config(c.encode(c.SetUp(tuple(c.Range(start, end, (1,)) for start, end in ranges))))


def test_another_version_says_so() -> None:
    for version in (1, c.VERSION + 1):
        with pytest.raises(c.CommandError, match=f"version {version}, this release reads version {c.VERSION}"):
            c.decode_shard(bytes([version]) + c.encode(c.Fence("a"))[1:])


@pytest.mark.parametrize(
    "rules", [{"": b"x"}, {"a": b""}, {"a": bytes(65)}, {str(n): b"x" for n in range(c.MAX_JOINS + 1)}]
)
def test_id_rules_have_limits(rules: dict[str, bytes]) -> None:
    with pytest.raises(c.CommandError, match="not a registry command"):
        c.decode_config(c.encode(c.SetUp(ALL_OF_TIME, rules)))
