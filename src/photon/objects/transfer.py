"""Copies directories to objects below a prefix, and back. One named file, written last, makes a copy valid."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from photon.config.errors import PhotonError, UsageError
from photon.objects.api import PART_BYTES, Meta, ObjectsFailed
from photon.objects.directory import bucket_of
from photon.objects.paths import ObjectPath

FILES_MAX = 100_000  # per directory
FILE_BYTES_MAX = PART_BYTES * 10_000  # the size of 10,000 parts: S3's limit


class ObjectsUnavailable(PhotonError):
    """A request to a store failed. The message is one line."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; completed parts stay; run this again")
        self.what = what


@contextmanager
def told(path: ObjectPath) -> Iterator[None]:
    """Turns a store's errors into ObjectsUnavailable, with one line. Errors of a local file stay OSError."""
    try:
        yield
    except OSError as error:
        if not isinstance(error, ObjectsFailed) and "://" not in str(error.filename):
            raise
        why = error.strerror or str(error) or type(error).__name__
        raise ObjectsUnavailable(f"{path}: {why}") from None


class FileParts:
    """Iterates over a file's bytes in parts; each iteration starts at the file's beginning."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            while data := file.read(PART_BYTES):
                yield data


def put_file(path: Path, to: ObjectPath) -> int:
    """Copies a file to an object, which appears as a whole; returns its size in bytes. Raises OSError."""
    size = path.stat().st_size
    if size > FILE_BYTES_MAX:
        raise ObjectsFailed(errno.EFBIG, f"{path} has more than {FILE_BYTES_MAX} bytes")
    bucket_of(to).objects.write(to.key, FileParts(path))
    return size


def below(path: ObjectPath, files_max: int = FILES_MAX) -> dict[str, Meta]:
    """Lists the objects below a prefix, by their name relative to it. Raises OSError."""
    prefix, found = f"{path.key}/" if path.key else "", dict[str, Meta]()
    for page in bucket_of(path).objects.list(prefix, ""):
        found.update((meta.key[len(prefix) :], meta) for meta in page)
        if len(found) > files_max:
            raise ObjectsFailed(errno.EFBIG, f"more than {files_max} objects have this prefix")
    return found


@contextmanager
def uploaded(to: ObjectPath, last: str) -> Iterator[Path]:
    """Yields a path at which the caller creates a directory; then uploads its files below ``to``, the file named
    ``last`` at the end. Raises UsageError if ``to`` already has that file, ObjectsUnavailable."""
    with told(to):
        if last in below(to):
            raise UsageError(f"{to}: already exists; name another place")
    with tempfile.TemporaryDirectory(prefix="photon-") as temporary:
        made = Path(temporary) / "made"
        yield made
        with told(to):
            upload(made, to, last)


def upload(directory: Path, to: ObjectPath, last: str) -> None:
    """Uploads a directory's files below ``to``, the file named ``last`` at the end. Raises OSError."""
    names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    for name in sorted(names, key=lambda name: (name == last, name)):
        put_file(directory / name, to / name)


@contextmanager
def fetched(path: ObjectPath, last: str) -> Iterator[Path]:
    """Downloads the files below ``path`` to a temporary directory and yields it. Raises UsageError if the copy is
    incomplete, ObjectsUnavailable."""
    with tempfile.TemporaryDirectory(prefix="photon-") as temporary:
        with told(path):
            found = below(path)
            if last not in found:
                raise UsageError(f"{path}: has no {last}: there is no copy here, or it is incomplete")
            objects = bucket_of(path).objects
            for name, meta in found.items():
                local = Path(temporary) / name
                if not local.resolve().is_relative_to(Path(temporary).resolve()):
                    raise UsageError(f"{path}/{name}: leads out of its directory")
                local.parent.mkdir(parents=True, exist_ok=True)
                with local.open("wb") as file:
                    for begin in range(0, meta.size, PART_BYTES):
                        file.write(objects.read(meta, begin, min(begin + PART_BYTES, meta.size)))
        yield Path(temporary)
