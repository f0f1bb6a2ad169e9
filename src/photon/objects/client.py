"""A bucket through obstore: S3 and all that speaks it, Google's storage. No request is repeated here.

Credentials, region and endpoint come from the environment and from what the machine has, as the stores' own tools
have them: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from photon.config.errors import UsageError
from photon.objects.api import PAGE_KEYS, PART_BYTES, Meta, ObjectsFailed

TIMEOUT = timedelta(seconds=30)
"""Of one request."""
CONNECT = timedelta(seconds=5)


def _imported() -> Any:
    try:
        import obstore
    except ImportError:
        raise UsageError("URLs of object stores need obstore: pip install 'photon-join[objects]'") from None
    return obstore


class ObstoreBucket:
    """See Objects."""

    def __init__(self, url: str) -> None:
        """Raises UsageError."""
        self._ob = _imported()
        from obstore.exceptions import BaseError
        from obstore.store import from_url

        self._failed = BaseError
        self._url = url
        try:
            self._store = from_url(
                url,
                client_options={"timeout": TIMEOUT, "connect_timeout": CONNECT, "allow_http": True},
                retry_config={"max_retries": 0, "backoff": {}, "retry_timeout": timedelta(0)},
            )
        except BaseError as error:
            raise UsageError(f"{url}: cannot be opened ({_line(error)})") from None

    def _error(self, error: Exception, key: str) -> OSError:
        from obstore import exceptions as known

        where = f"{self._url}/{key}"
        if isinstance(error, known.NotFoundError):
            return FileNotFoundError(errno.ENOENT, "no such object or bucket", where)
        if isinstance(error, known.PermissionDeniedError | known.UnauthenticatedError):
            return PermissionError(errno.EACCES, f"refused ({_line(error)})", where)
        if isinstance(error, known.PreconditionError | known.NotModifiedError):
            return ObjectsFailed(errno.ESTALE, "holds other bytes than it did when it was listed")
        return ObjectsFailed(errno.EIO, _line(error), again=True)

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
            raise ObjectsFailed(errno.EIO, f"sent {len(data)} of {end - begin} bytes", again=True)
        return data

    def write(self, key: str, parts: Iterable[bytes]) -> None:
        try:
            self._ob.put(self._store, key, iter(parts), use_multipart=True, chunk_size=PART_BYTES, max_concurrency=4)
        except self._failed as error:
            raise self._error(error, key) from None

    def delete(self, key: str) -> None:
        try:
            self._ob.delete(self._store, key)
        except FileNotFoundError:
            return
        except self._failed as error:
            raise self._error(error, key) from None


def _meta(each: Any) -> Meta:
    modified_ns = int(each["last_modified"].timestamp() * 1e9)
    return Meta(each["path"], each["size"], modified_ns, each.get("e_tag") or f"{each['size']} {modified_ns}")


def _line(error: Exception) -> str:
    """What went wrong, without the library's own account of itself."""
    return " ".join(str(error).split("\n\nDebug source:")[0].split())[:300]
