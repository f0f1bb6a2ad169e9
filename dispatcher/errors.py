"""Errors that can end a dispatcher."""

from __future__ import annotations

from photon.config.errors import PhotonError


class StateError(PhotonError):
    """The dispatcher's durable state cannot be used. ``str()`` is one line: where, what failed, what to do."""

    def __init__(self, where: str, what: str, todo: str) -> None:
        super().__init__(f"{where}: {what}; {todo}")


class DamagedState(StateError):
    """The dispatcher's durable state is corrupt."""


class RuleError(StateError):
    """The state was written under different rules from the configured ones: fix the configuration."""

    exit_code = 2
