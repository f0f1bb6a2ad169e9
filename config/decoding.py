"""What decoding may raise, and the range of its integers."""

from __future__ import annotations

from typing import Annotated

import msgspec

# For malformed bytes; Python's own exception is for texts that are not UTF-8.
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError)
INT64 = range(-(1 << 63), 1 << 63)
Int64 = Annotated[int, msgspec.Meta(ge=INT64[0], le=INT64[-1])]  # a flipped bit in its text may lead out of it
