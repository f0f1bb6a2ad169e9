"""What can end a dispatcher."""

from __future__ import annotations

from photon.config.errors import PhotonError


class StateError(PhotonError):
    """The dispatcher's durable state cannot be used. ``str()`` is one line: where, what, what to do."""

    def __init__(self, where: str, what: str, todo: str) -> None:
        super().__init__(f"{where}: {what}; {todo}")


class NameTaken(StateError):
    """Another process works under this worker's name."""


class DamagedState(StateError):
    """Its bytes are not what was written."""


class RuleError(StateError):
    """The state was written under other rules than the configuration's: to be mended there."""

    exit_code = 2


class WorkerFenced(PhotonError):
    """This worker was taken for dead: what it has read and not committed is another's now. It begins anew."""

    def __init__(self) -> None:
        super().__init__(
            "this worker stood still for longer than its lease; others have its logs now; it begins anew"
        )
