"""Divides a datacentre's logs among its dispatchers, and names the files of their states.

A log belongs to the partition that its first record hashes to, so that one process reads all files that may be the
same log. Each partition has its own database; whoever holds the database's lock may read the partition's logs. A file
next to the databases stores the number of partitions, from which the names of the valid databases follow; ``moving``
changes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from photon.adapters.logs.identity import record_of
from photon.config.disk import Disk, RealDisk
from photon.config.versioned_file import read_versioned
from photon.dispatcher.errors import StateError

PARTITIONS_MAX = 8  # SQLite can attach this many databases, and a few more (``database.opened``)
NUMBER_NAME = "dispatchers"  # the file with the number of partitions; without it there is one
_NAME = re.compile(r"(\d+)of(\d+)")


@dataclass(frozen=True, slots=True)
class Partition:
    """One of ``count`` shares of the logs; ``number`` starts at 1."""

    number: int = 1
    count: int = 1

    @property
    def name(self) -> str:
        """A suffix for the names of the process and its files; empty if it has all logs."""
        return "" if self.count == 1 else f"{self.number}of{self.count}"

    def named(self, what: str) -> str:
        return f"{what}-{self.name}" if self.name else what

    def holds(self, identity: str) -> bool:
        """True if the log belongs to this partition."""
        return partition_of(identity, self.count) == self.number


ALL = Partition()


def partition_of(identity: str, count: int) -> int:
    """Returns the number of the partition that a log belongs to."""
    return int(record_of(identity), 16) % count + 1


def partition_named(name: str) -> Partition | None:
    """The inverse of ``Partition.name``; ``None`` if there is no such partition."""
    if not name:
        return ALL
    found = _NAME.fullmatch(name)
    partition = Partition(*map(int, found.groups())) if found else ALL
    return partition if partition.name == name and 1 <= partition.number <= partition.count else None


def all_of(count: int) -> list[Partition]:
    return [Partition(number, count) for number in range(1, count + 1)]


class Number(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="version", tag=1):
    """The number of partitions.

    ``moved_from``: the number before; its databases may remain but are no longer valid.
    """

    dispatchers: int
    moved_from: int = 0


def file_of(state: Path, partition: Partition) -> Path:
    """Returns the path of a partition's database. ``state``: the path for a single dispatcher."""
    return state.with_name(f"{partition.named(state.stem)}{state.suffix}")


def files_of(state: Path) -> list[Path]:
    """Returns the paths of the valid databases, which may not exist yet. Raises StateError."""
    return [file_of(state, each) for each in all_of(read_number(state).dispatchers)]


def there(state: Path) -> bool:
    """True if any of the valid databases exists. Raises StateError."""
    return any(file.exists() for file in files_of(state))


def read_number(state: Path) -> Number:
    """Returns the number of partitions on disk. Raises StateError."""
    path = state.with_name(NUMBER_NAME)
    try:
        number = read_versioned(RealDisk(), path, Number, _damaged)
    except OSError as error:
        raise StateError(str(path), f"cannot be read ({error.strerror})", "make it readable for this user") from None
    if number is None:
        return Number(1)
    if not 1 <= number.dispatchers <= PARTITIONS_MAX:
        raise _damaged(path, f"{number.dispatchers} dispatchers")
    return number


def write_number(disk: Disk, state: Path, number: Number) -> None:
    """Durably changes which databases are valid. Raises OSError."""
    disk.replace(state.with_name(NUMBER_NAME), msgspec.json.encode(number))


def _damaged(path: Path, why: str) -> StateError:
    return StateError(
        str(path), f"is damaged ({why})", "write into it the number of dispatchers whose databases are next to it"
    )
