"""Paths that may be URLs. A URL becomes an ``ObjectPath``, which can be passed like a ``Path`` but cannot be opened
as a file."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path, PosixPath

from photon.config.errors import UsageError

SCHEMES = ("s3", "gs")
_URL = re.compile(r"([a-z][a-z0-9+.-]*):/{1,2}(?=[^/])(.*)", re.DOTALL)
_DIRECTORY = os.stat_result((stat.S_IFDIR | 0o755, 0, 0, 1, 0, 0, 0, 0, 0, 0))


class ObjectPath(PosixPath):
    """A path such as ``s3://BUCKET/PREFIX``: a prefix, treated as a directory, or an object's key."""

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    def __fspath__(self) -> str:
        raise TypeError(f"{self}: is not a file on this machine")

    @property
    def bucket(self) -> str:
        """The bucket's URL, ``s3://BUCKET``."""
        return f"{self.parts[0]}//{self.parts[1]}"

    @property
    def key(self) -> str:
        """The path inside the bucket; empty for the bucket itself."""
        return "/".join(self.parts[2:])

    # A prefix need not be created, and has no links: so that code for directories of logs works with it.
    def absolute(self) -> ObjectPath:
        return self

    def resolve(self, strict: bool = False) -> ObjectPath:
        return self

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return _DIRECTORY

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        return None


def placed(base: Path, text: str | Path) -> Path:
    """Resolves a path or URL relative to ``base``: URLs stay URLs, except that ``file://`` becomes a path.

    Raises UsageError for other URLs.
    """
    if isinstance(text, ObjectPath):
        return text
    url = _URL.fullmatch(str(text))
    if url is None:
        return base / text.removeprefix("file://") if isinstance(text, str) else base / text
    if url[1] not in SCHEMES:
        known = ", ".join(f"{each}://" for each in (*SCHEMES, "file"))
        raise UsageError(f"{text}: URLs of this kind cannot be read; there are {known}")
    return ObjectPath(f"{url[1]}://{url[2].strip('/')}")
