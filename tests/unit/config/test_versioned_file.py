"""A format's version is its struct's tag: a different or missing one is refused in one line."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from photon.config.disk import RealDisk
from photon.config.versioned_file import decoded, read_versioned


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="photon_mark", tag=3):
    at: int = 0


class Row(msgspec.Struct, array_like=True, tag_field="version", tag=2):
    at: int


class Damaged(Exception):
    pass


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mark.json"
    assert read_versioned(RealDisk(), path, Mark, Damaged) is None
    path.write_bytes(msgspec.json.encode(Mark(7)))
    assert path.read_bytes() == b'{"photon_mark":3,"at":7}'
    assert read_versioned(RealDisk(), path, Mark, Damaged) == Mark(7)
    assert decoded(msgspec.msgpack.encode(Row(7)), Row, msgspec.msgpack.decode) == Row(7)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"photon_mark":4,"new":1}', "version 4, this release reads version 3"),
        (b'{"at":7}', "missing required field `photon_mark`"),
        (b'{"photon_mark":3,"new":1}', "unknown field `new`"),
        (b'{"photon_mark":"3"}', "Expected `int`"),
        (b"{", "truncated"),
    ],
)
def test_another_version_or_damage_is_named_with_the_file(data: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "mark.json"
    path.write_bytes(data)
    with pytest.raises(Damaged) as caught:
        read_versioned(RealDisk(), path, Mark, Damaged)
    assert caught.value.args[0] == path
    assert why in caught.value.args[1]


def test_a_row_of_another_version_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="version 1, this release reads version 2"):
        decoded(msgspec.msgpack.encode([1, 7, "more"]), Row, msgspec.msgpack.decode)
