"""Accesses a bucket through obstore: S3, compatible stores, and Google Cloud Storage. Repeats no request.

Credentials, region and endpoint come from the environment or the machine, as with the stores' own tools:
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS.
"""

from __future__ import annotations

import errno
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from photon.config.clock import NS_PER_S
from photon.config.errors import UsageError
from photon.objects.api import PAGE_KEYS, PART_BYTES, Meta, ObjectChanged, ObjectsFailed

TIMEOUT = timedelta(seconds=30)  # per request
CONNECT = timedelta(seconds=5)
_STATUS = re.compile(r"status code: (\d{3})( [A-Za-z ]+)?")
_BAD_KEY = "object with invalid path"  # error of a listing, which ends there
_CODE = re.compile(r"<Code>(\w+)</Code>")


def _imported() -> Any:
    try:
        import obstore
    except ImportError:
        raise UsageError("URLs of object stores need obstore: pip install 'photon-join[objects]'") from None
    return obstore


class ObstoreBucket:
    """Implements Objects."""

    def __init__(self, url: str) -> None:
        """Opens the bucket at ``url``. Raises UsageError."""
        self._ob = _imported()
        from obstore.exceptions import BaseError
        from obstore.store import from_url

        self._failed = (BaseError, OSError)
        self._url = url
        try:
            self._store = from_url(
                url,
                client_options={"timeout": TIMEOUT, "connect_timeout": CONNECT, "allow_http": True},
                retry_config={"max_retries": 0, "backoff": {}, "retry_timeout": timedelta(0)},
            )
        except BaseError as error:
            raise UsageError(f"{url}: cannot be opened ({_line(error)})") from None

    def _error(self, error: Exception, key: str, *, uploads: bool = False) -> OSError:
        if (
            isinstance(error, OSError) and error.errno is not None
        ):  # an error of this machine, in reading the data to write
            return error
        where = f"{self._url}/{key}"
        said = _STATUS.search(str(error))
        status = int(said[1]) if said else 404 if isinstance(error, FileNotFoundError) else 0
        code = _CODE.search(str(error))
        what = " ".join(
            each for each in (f"{said[1]}{said[2]}" if said else "", f"({code[1]})" if code else "") if each
        )
        if status == 404:
            lacks_bucket = code is not None and "Bucket" in code[1]
            if uploads and not lacks_bucket:
                return ObjectsFailed(errno.EIO, "the store no longer knows the upload", again=True)
            return FileNotFoundError(errno.ENOENT, f"no such {'bucket' if lacks_bucket else 'object'}", where)
        if status in (401, 403):
            return PermissionError(errno.EACCES, f"refused: {what}; check the credentials", where)
        if status == 412:
            return ObjectsFailed(errno.ESTALE, "has changed since it was listed")
        if _BAD_KEY in str(error):
            return ObjectsFailed(errno.EINVAL, f"a key has a part that is empty, . or ..; rename it ({_line(error)})")
        again = not said or status >= 500 or status in (408, 429)
        return ObjectsFailed(errno.EIO, what or _line(error), again=again)

    def list(self, prefix: str, after: str) -> Iterator[Sequence[Meta]]:
        try:
            for page in self._ob.list(self._store, prefix or None, offset=after or None, chunk_size=PAGE_KEYS):
                yield [_meta(each) for each in page]
        except self._failed as error:
            raise self._error(error, prefix) from None

    def head(self, key: str) -> Meta:
        try:
            return _meta(self._ob.head(self._store, key))
        except self._failed as error:
            raise self._error(error, key) from None

    def read(self, meta: Meta, begin: int, end: int) -> bytes:
        options: dict[str, Any] = {"range": (begin, end)}
        if meta.etag:
            options["if_match"] = meta.etag
        try:
            data = bytes(self._ob.get(self._store, meta.key, options=options).bytes())
        except self._failed as error:
            raise self._error(error, meta.key) from None
        if len(data) != end - begin:
            raise ObjectsFailed(errno.EIO, f"the store sent {len(data)} of {end - begin} bytes", again=True)
        return data

    def write(self, key: str, parts: Iterable[bytes]) -> None:
        try:
            self._ob.put(self._store, key, iter(parts), chunk_size=PART_BYTES, max_concurrency=4)
        except self._failed as error:
            raise self._error(error, key, uploads=True) from None

    def swap(self, key: str, data: bytes, over: Meta | None) -> Meta:
        from obstore.exceptions import AlreadyExistsError, NotFoundError, PreconditionError

        mode: Any = "create"
        if over is not None:
            mode = {"e_tag": over.etag} | ({"version": over.version} if over.version else {})
        try:
            put = self._ob.put(self._store, key, data, mode=mode, use_multipart=False)
        except (AlreadyExistsError, NotFoundError, PreconditionError):
            raise ObjectChanged from None
        except self._failed as error:
            raise self._error(error, key) from None
        return Meta(key, len(data), 0, put["e_tag"] or "", put["version"] or "")

    def delete(self, key: str) -> None:
        try:
            self._ob.delete(self._store, key)
        except FileNotFoundError:
            return
        except self._failed as error:
            raise self._error(error, key) from None


def _meta(each: Any) -> Meta:
    etag = each.get("e_tag") or ""
    modified_ns = _moment_ns(int(each["last_modified"].timestamp()), etag)
    return Meta(each["path"], each["size"], modified_ns, etag if etag.strip('"') else "", each.get("version") or "")


def _moment_ns(second: int, etag: str) -> int:
    """Returns a modification time. Stores report whole seconds (S3 for a single object, but not in listings), so the
    fraction is derived from the ETag: readers that compare size and time then notice changes within a second."""
    return second * NS_PER_S + zlib.crc32(etag.encode()) % NS_PER_S


def _line(error: Exception) -> str:
    """Returns an error's text without the library's explanations."""
    return " ".join(str(error).split("\n\nDebug source:")[0].split())[:300]
