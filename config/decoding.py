"""What decoding raises."""

from __future__ import annotations

import msgspec

DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError)
"""For bytes that are not what they should be; of texts that are no UTF-8 it is Python's own."""
