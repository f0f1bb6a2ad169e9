"""Patterns of fields between delimiters. Pure."""

from __future__ import annotations

import re

from photon.adapters.formats.text_lines import BLANKS


def escaped(delimiter: bytes, quote: bytes, escape: bytes) -> re.Pattern[bytes] | None:
    """Returns a pattern of an escape and the escaped character (group 1); ``None`` if nothing can be escaped."""
    if not escape or escape == quote:
        return None
    first = delimiter[:1] if delimiter != BLANKS else b" \t"
    e, others = re.escape(escape), b"".join(map(re.escape, map(bytes, zip(escape + quote + first))))
    return re.compile(rb"%b([%b\n])" % (e, others))


def field_pattern(delimiter: bytes, quote: bytes, escape: bytes = b"") -> re.Pattern[bytes]:
    """Returns a pattern of one field: group 1 is quoted text, 2 plain text, 3 the delimiter (none after the last)."""
    d, q = re.escape(delimiter), re.escape(quote)
    between = rb"[ \t]++" if delimiter == BLANKS else d
    quoted = rb"%b(%b)%b" % (q, quoted_text(q, escape=escape), q) if quote else rb"(?!)()"
    return re.compile(rb"(?:%b|(%b))(?:(%b)|\Z)" % (quoted, plain_text(delimiter, escape), between), re.DOTALL)


def plain_text(delimiter: bytes, escape: bytes = b"", never: bytes = b"") -> bytes:
    """Returns a pattern of an unquoted field's text. ``never``: further characters to exclude, as in a class."""
    e = re.escape(escape)
    if len(delimiter) == 1 or delimiter == BLANKS:
        first = rb" \t" if delimiter == BLANKS else re.escape(delimiter)
        other = rb"[^%b%b%b]" % (first, e, never)
    else:
        other = rb"(?:(?>(?!%b)%b))" % (re.escape(delimiter), rb"[^%b%b]" % (e, never) if e + never else rb"(?s:.)")
    return (
        rb"(?:(?>%b|%b%b))*+" % (other, e, rb"[^%b]" % never if never else rb"(?s:.)") if escape else rb"%b*+" % other
    )


def quoted_text(quote: bytes, never: bytes = b"", escape: bytes = b"") -> bytes:
    """Returns a pattern of the text between quotes, including doubled or escaped ones. Takes patterns."""
    if not escape:
        return rb"[^%b%b]*+(?:(?>%b%b[^%b%b]*+))*+" % (quote, never, quote, quote, quote, never)
    e, any_ = re.escape(escape), rb"[^%b]" % never if never else rb"(?s:.)"
    return rb"(?:(?>[^%b%b%b]|%b%b))*+" % (quote, never, e, e, any_)
