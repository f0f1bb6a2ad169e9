"""Encodings of text logs in which line ends can be found: UTF-8, UTF-16 and all single-byte codecs of Python."""

from __future__ import annotations

import codecs
import importlib
from typing import NamedTuple

UTF8 = "utf-8"
UTF16 = 'its file is UTF-16 text: write encoding = "utf-16"'
_UTF16 = {"utf-16": "", "utf-16-le": "utf-16-le", "utf-16-be": "utf-16-be"}
_BOMS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def canonical(name: str) -> str | None:
    """Returns the codec's own name; ``None`` if it is unknown, or line ends cannot be found in its text."""
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        return None
    if found in ("utf-8", "utf-8-sig", "ascii"):
        return UTF8
    if found in _UTF16 or found == "iso8859-1":
        return found
    try:
        module = importlib.import_module(f"encodings.{found.replace('-', '_')}")
    except ImportError:
        return None
    return found if hasattr(module, "decoding_table") else None


class Bytes(NamedTuple):
    """A text's encoding: its codec, its smallest character's size in bytes, and the length of its byte order mark."""

    codec: str
    width: int
    mark: int = 0

    @property
    def newline(self) -> bytes:
        return "\n".encode(self.codec)

    def after_last_line(self, data: bytes) -> int:
        """Returns the end of the last complete line; 0 if there is none."""
        end = data.rfind(self.newline)
        while end > 0 and end % self.width:
            end = data.rfind(self.newline, 0, end + self.width - 1)
        return end + self.width if end >= 0 and not end % self.width else 0

    def utf8(self, data: bytes) -> bytes:
        """Returns text as UTF-8. Invalid bytes stay unchanged, so that their record is not UTF-8."""
        if self.codec == UTF8:
            return data
        errors = "surrogateescape" if self.width == 1 else "surrogatepass"
        return data.decode(self.codec, errors).encode(UTF8, errors)


def bytes_of(encoding: str, begin: bytes) -> Bytes | None:
    """Returns the encoding of a file's text; ``None`` if ``begin``, its first bytes, are too few to tell."""
    if encoding == UTF8:
        if len(begin) < len(codecs.BOM_UTF8) and codecs.BOM_UTF8.startswith(begin):
            return None
        return Bytes(UTF8, 1, len(codecs.BOM_UTF8) if begin.startswith(codecs.BOM_UTF8) else 0)
    if encoding not in _UTF16:
        return Bytes(encoding, 1)
    if len(begin) < 2:
        return None
    marked = _BOMS.get(begin[:2])
    return Bytes(marked or _UTF16[encoding] or "utf-16-le", 2, 2 if marked else 0)


def with_state(encoding: str, state: bytes) -> Bytes:
    """Returns the encoding of the rest of a file's text; ``state`` is the former ``Bytes.codec``."""
    return Bytes(state.decode(), 2 if encoding in _UTF16 else 1)


def looks_utf16(data: bytes) -> bool:
    """True if the data begins with a UTF-16 byte order mark, or has as many zero bytes as English text in UTF-16."""
    return data.startswith(tuple(_BOMS)) or 3 * data[:1024].count(b"\0") > len(data[:1024])
