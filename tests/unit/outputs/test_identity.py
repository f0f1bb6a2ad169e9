"""An output is recognized by its identity, not by names that every output has."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from photon.computing.injector import Injector, furthest
from photon.computing.publisher import Publisher
from photon.computing.wire import Item
from photon.config.disk import RealDisk
from photon.library import Output
from photon.outputs.cursor import Cursor, OtherOutput
from photon.outputs.identity import IdentityDamaged, identify, identity_of
from photon.outputs.output_places import OutputPlace
from photon.outputs.relay import Relay

DISK = RealDisk()
SLOT = "local-1"


def _output(directory: Path, records: int = 3) -> Path:
    publisher = Publisher(DISK, directory, SLOT)
    publisher.publish([Item(n, "", "", n, msgspec.msgpack.encode(n), "in") for n in range(records)])
    publisher.close()
    return directory


def _place(directory: Path) -> OutputPlace:
    return OutputPlace.of_join(directory)


def _inject(directory: Path, position: bytes | None = None) -> Injector:
    return Injector(DISK, "in", {"output": _place(directory)}, ("joined",), position)


def test_it_is_drawn_once_for_all_that_publish_there(tmp_path: Path) -> None:
    _output(tmp_path)
    first = identity_of(DISK, tmp_path / ".photon")
    Publisher(DISK, tmp_path, "other").close()
    identify(DISK, tmp_path / ".photon", "another", "other")
    assert first == identity_of(DISK, tmp_path / ".photon")
    assert identity_of(DISK, tmp_path / "nothing") == ""
    (tmp_path / ".photon" / "output.json").write_bytes(b"{")
    with pytest.raises(IdentityDamaged, match=r"output\.json: unreadable"):
        identity_of(DISK, tmp_path / ".photon")


def _read(directory: Path, cursor: bytes | None = None) -> bytes:
    batches = list(Output.of_join(directory).batches(cursor=cursor))
    return batches[-1].cursor if batches else cursor or b""


def _relayed(directory: Path, cursor: bytes | None = None) -> bytes:
    copies = directory.parent / "copies"
    if cursor is not None:
        (copies / ".name.cursor").write_bytes(cursor)
    relay = Relay(DISK, _place(directory), copies, "name")
    try:
        relay.pass_on()
    finally:
        relay.close()
    return (copies / ".name.cursor").read_bytes()


def _injected(directory: Path, position: bytes | None = None) -> bytes:
    injector = _inject(directory, position)
    list(injector.read())
    return injector.position()


def _ended(directory: Path, cursor: bytes | None = None) -> bytes:
    return Output.of_join(directory).end() if cursor is None else _read(directory, cursor)


@pytest.mark.parametrize("follow", [_read, _relayed, _injected, _ended])
def test_a_cursor_of_another_output_is_refused_and_names_both(tmp_path: Path, follow: Callable[..., bytes]) -> None:
    one, two = _output(tmp_path / "one"), _output(tmp_path / "two", 5)
    cursor = follow(one)
    _output(one, 5)
    follow(one, cursor)
    ids = [identity_of(DISK, each / ".photon") for each in (one, two)]
    with pytest.raises(OtherOutput) as refused:
        follow(two, cursor)
    assert refused.value.exit_code == 3
    assert all(each in str(refused.value) for each in (*ids, str(two)))
    shutil.rmtree(two)
    shutil.move(one, two)
    follow(two, cursor)  # it is the output, wherever it is


def test_a_cursor_keeps_the_identity(tmp_path: Path) -> None:
    one = _output(tmp_path / "one")
    position = _injected(one)
    id = identity_of(DISK, one / ".photon").encode()
    assert id in position
    assert id in furthest([position, None])
    assert Cursor.decode(_read(one), "x").output.encode() == id
    assert Cursor.decode(_read(one), "x") == Cursor(Cursor.decode(_read(one), "x").positions)
