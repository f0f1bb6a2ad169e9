"""What each process of a supervisor is doing, and how that looks to a person. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

Condition = Literal["up", "starting", "not serving", "silent", "paused", "held", "restarting", "failing", "ended"]
"""up: healthy, or alive where it has no health service · starting: alive, not healthy yet · not serving: it was
healthy and now says that it cannot serve · silent: it was healthy and does not answer · paused: stopped by SIGSTOP of
an operator · held: down until an operator releases it · restarting: ended, comes again · failing: ends again and
again by itself, is tried again · ended: for good, the supervisor stops."""


class ServiceState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    datacentre: str
    pid: int | None
    state: Condition
    detail: str = ""
    """The last line of its log, where it tells why the process is not up."""
    exit_code: int | None = None
    """Of its last end, below 0 a signal; None while it has never ended."""
    restart_in_s: float | None = None
    uptime_s: float | None = None
    restarts: int = 0
    address: str | None = None
    variables: tuple[str, ...] = ()
    """Names of those that its processes have beside the supervisor's own: those of a fault that was done to it."""

    @property
    def words(self) -> str:
        again = "" if self.restart_in_s is None else f" in {self.restart_in_s:.0f} s"
        if self.state == "failing" and again:
            return f"failing, again{again}"
        return f"restarting{again}" if self.state == "restarting" else self.state


def summary(states: list[ServiceState]) -> str:
    """``all 12 processes are up``, or those that are not."""
    wrong = [state for state in states if state.state != "up"]
    if not wrong:
        return f"all {len(states)} processes are up"
    named = "; ".join(
        f"{state.name} is {state.words}" + (f": {state.detail}" if state.detail else "") for state in wrong
    )
    return f"{len(wrong)} of {len(states)} processes are not up: {named}"
