"""Exceptions raised by decoding."""

from __future__ import annotations

import msgspec

# For malformed bytes; Python's own exception is for texts that are not UTF-8.
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError)
