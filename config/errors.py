"""The root of the errors that are shown in one line: what, where, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import msgspec

    DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError)
    """What msgspec raises for bytes that are not what they should be; for texts that are no UTF-8 it is Python's."""
else:

    def __getattr__(name: str) -> object:
        """The same when it is asked for: a health check needs none of it, and each imports its errors from here."""
        if name != "DECODE_ERRORS":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import msgspec

        return msgspec.MsgspecError, UnicodeDecodeError


class PhotonError(Exception):
    """``str()`` is one line that says what is wrong, where, and what to do. ``exit_code`` is the command's.

    photon.config.loader.ConfigError, photon.adapters.contract.AdapterError and the rooms' own errors derive from it.
    """

    exit_code = 1
    example = ""
    """Lines of a file that would do, shown below the message as they are."""

    def with_example(self, example: str) -> Self:
        """Shown below a traceback too. Empty: there is none."""
        self.example = example
        if example:
            self.add_note(f"\n{example.strip()}\n")
        return self


class UsageError(PhotonError):
    """The command or its configuration is wrong; nothing was started."""

    exit_code = 2
