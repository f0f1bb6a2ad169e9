"""Keeps a key's maps and lists entry by entry, each in its own row, so that a large map costs only the entries read
and written.

Rows are named ``COMPUTATION/NAME:ENTRY``, like chunks of set-aside records.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, overload

import msgspec

from photon.computing.errors import Misused

V = TypeVar("V")
ENTRY_BYTES_MAX = 1 << 20
NAME_BYTES_MAX = 500  # of an entry: HBase's rows have short names
_SCALARS = frozenset({type(None), bool, int, float, str, bytes})
_CONTAINERS = frozenset({list, dict})
_encode = msgspec.msgpack.Encoder().encode


def changed_type(state: dict[Any, Any]) -> type | None:
    """Returns a type in the state that would be read back as another one, such as tuple as list; ``None`` if there is
    none."""
    left: list[Any] = [state]
    for each in left:
        if type(each) is dict:
            if not _SCALARS.issuperset(map(type, each)):
                if strange := set(map(type, each)) - _SCALARS - {tuple}:
                    return strange.pop()
                left += [list(key) for key in each if type(key) is tuple]  # as a key it does come back
            each = each.values()
        if not _SCALARS.issuperset(map(type, each)):
            left += (containers := [value for value in each if type(value) in _CONTAINERS])
            if len(containers) < len(each) and (strange := set(map(type, each)) - _SCALARS - _CONTAINERS):
                return strange.pop()
    return None


class Entries(Protocol):
    """The entries of the current key, by part (``NAME:``) and entry name."""

    def get(self, part: str, entry: str) -> bytes | None: ...

    def put(self, part: str, entry: str, data: bytes | None) -> None: ...

    def scan(self, part: str) -> Iterator[tuple[str, bytes]]:
        """Yields the entries of a part, in the order of their names."""
        ...


def checked_part(name: str) -> str:
    if not name or any(sign in name for sign in "/:\0"):
        raise Misused(f"a map or list is named {name!r}: it must not be empty or contain / or :")
    return f"{name}:"


class _Entries(Generic[V]):
    def __init__(self, entries: Entries, part: str, kind: type[V]) -> None:
        self._entries, self._part = entries, part
        self._any, self._decode = kind is Any, msgspec.msgpack.Decoder(kind).decode

    def _put(self, entry: str, value: V) -> None:
        data = _encode(value)
        if len(data) > ENTRY_BYTES_MAX:
            raise Misused(f"an entry of {self._part[:-1]} has {len(data)} bytes, more than {ENTRY_BYTES_MAX}")
        if self._any and (strange := changed_type({0: value})) is not None:
            raise Misused(
                f"an entry of {self._part[:-1]} has a {strange.__name__}, which would be read back as another type"
            )
        self._entries.put(self._part, entry, data)


class EntryMap(_Entries[V], MutableMapping[Any, V]):
    """A map with str or int keys. Iteration and ``len`` read the whole map; the order is arbitrary."""

    def __getitem__(self, key: str | int) -> V:
        data = self._entries.get(self._part, _named(key))
        if data is None:
            raise KeyError(key)
        return self._decode(data)

    def __setitem__(self, key: str | int, value: V) -> None:
        self._put(_named(key), value)

    def __delitem__(self, key: str | int) -> None:
        if key not in self:
            raise KeyError(key)
        self._entries.put(self._part, _named(key), None)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str | int) and self._entries.get(self._part, _named(key)) is not None

    def __iter__(self) -> Iterator[str | int]:
        for entry, _ in self._entries.scan(self._part):
            yield int(entry[1:]) if entry[0] == "i" else entry[1:]

    def __len__(self) -> int:
        return sum(1 for _ in self._entries.scan(self._part))


class EntryList(_Entries[V], Sequence[V]):
    """A list that grows at its end and shrinks at its start."""

    def __len__(self) -> int:
        first, end = self._ends()
        return end - first

    @overload
    def __getitem__(self, at: int) -> V: ...

    @overload
    def __getitem__(self, at: slice) -> list[V]: ...

    def __getitem__(self, at: int | slice) -> V | list[V]:
        if isinstance(at, slice):
            return [self[n] for n in range(*at.indices(len(self)))]
        return self._decode(self._entries.get(self._part, self._place(at)) or b"")

    def __setitem__(self, at: int, value: V) -> None:
        self._put(self._place(at), value)

    def __iter__(self) -> Iterator[V]:
        for entry, data in self._entries.scan(self._part):
            if entry != "ends":
                yield self._decode(data)

    def append(self, value: V) -> None:
        first, end = self._ends()
        self._put(f"{end:020d}", value)
        self._keep_ends(first, end + 1)

    def pop_first(self) -> V:
        """Removes and returns the first item. Raises IndexError if the list is empty."""
        value = self[0]
        first, end = self._ends()
        self._entries.put(self._part, f"{first:020d}", None)
        self._keep_ends(first + 1, end)
        return value

    def _place(self, at: int) -> str:
        first, end = self._ends()
        place = at + (first if at >= 0 else end)
        if not first <= place < end:
            raise IndexError(at)
        return f"{place:020d}"

    def _ends(self) -> tuple[int, int]:
        data = self._entries.get(self._part, "ends")
        return (0, 0) if data is None else msgspec.msgpack.decode(data, type=tuple[int, int])

    def _keep_ends(self, first: int, end: int) -> None:
        self._entries.put(self._part, "ends", None if first == end else _encode((first, end)))


def _named(key: str | int) -> str:
    if type(key) is int:
        return f"i{key}"
    if type(key) is not str or "\0" in key or len(key.encode()) > NAME_BYTES_MAX:
        raise Misused(
            f"an entry is named {str(key)[:50]!r}: it must be an int, or a str of at most {NAME_BYTES_MAX} bytes and "
            "no zero byte"
        )
    return f"s{key}"
