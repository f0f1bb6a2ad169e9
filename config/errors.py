"""Base class of errors shown in one line: what failed, where, what to do."""

from __future__ import annotations

from typing import Self


class PhotonError(Exception):
    """``str()`` is one line that says what is wrong, where, and what to do. ``exit_code``: the command's exit code.

    photon.config.loader.ConfigError, photon.adapters.contract.AdapterError and the rooms' own errors derive from it.
    """

    exit_code = 1
    example = ""  # lines of a valid file, shown unchanged below the message

    def with_example(self, example: str) -> Self:
        """Adds an example, which is also shown below a traceback; an empty one adds nothing."""
        self.example = example
        if example:
            self.add_note(f"\n{example.strip()}\n")
        return self


class UsageError(PhotonError):
    """The command or its configuration is wrong; nothing was started."""

    exit_code = 2
