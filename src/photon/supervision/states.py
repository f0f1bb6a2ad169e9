"""The state of each of a supervisor's processes, its text for people, and the time of the next restart.

Pure: exit codes, times and the random draw are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

# up: healthy, or alive without a health service · starting: alive, not healthy yet · not serving: was healthy, now
# says that it cannot serve · silent: was healthy, does not answer · paused: stopped by an operator's SIGSTOP · held:
# down until an operator releases it · restarting: ended, will be started · failing: keeps ending by itself, is
# retried · ended: permanently, the supervisor stops.
Condition = Literal["up", "starting", "not serving", "silent", "paused", "held", "restarting", "failing", "ended"]
USAGE_EXIT = 2
ATTENTION_EXIT = 3  # files that do not match: another start would fail again
STEADY_S = 10.0  # a process that ran this long starts its back-off from the beginning
FAILURES_MAX = 3  # consecutive errors after which a process is failing; exit codes 2 and 3 mean so at once
# Consecutive kills of a process before it was steady, after which it is failing: the machine may lack memory.
SHORT_LIVES_MAX = 20


class ServiceState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    datacentre: str
    pid: int | None
    state: Condition
    detail: str = ""  # the last line of its log, if that has the reason why it is not up
    exit_code: int | None = None  # exit code of its last end, below 0 a signal; None if it never ended
    restart_in_s: float | None = None
    uptime_s: float | None = None
    start_s: float | None = None  # how long its last start took; None until it was up
    restarts: int = 0
    address: str | None = None
    # Names of its processes' variables other than the supervisor's own, from an injected fault.
    variables: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        again = "" if self.restart_in_s is None else f" in {self.restart_in_s:.0f} s"
        if self.state == "failing" and again:
            return f"failing, again{again}"
        return f"restarting{again}" if self.state == "restarting" else self.state


def summary(states: list[ServiceState]) -> str:
    """Returns ``all 12 processes are up``, or names those that are not."""
    wrong = [state for state in states if state.state != "up"]
    if not wrong:
        return f"all {len(states)} processes are up" if len(states) > 1 else "the process is up"
    named = "; ".join(
        f"{state.name} is {state.words}" + (f": {state.detail}" if state.detail else "") for state in wrong
    )
    return f"{len(wrong)} of {len(states)} processes are not up: {named}"


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    waits_s: tuple[float, ...]  # wait before the n-th consecutive restart; then the last value
    usage_wait_s: float = 0.0  # shortest wait after an exit with code 2: as a person must fix something first
    # Up to this share is added, so that processes that failed together restart at different times.
    jitter: float = 0.0
    gives_up: bool = True  # a failing service ends the supervisor's owner; else it is retried forever


# For ``photon join`` and the demo: a failing service ends the command.
EMBEDDED = RestartPolicy((0.05, 0.2, 0.5, 1.0, 2.0, 5.0))
# For ``photon up``.
LONG_RUN = RestartPolicy((0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0), usage_wait_s=30.0, jitter=0.2, gives_up=False)


class Restarts:
    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._in_a_row = 0
        self._failures = 0
        self.failing = False  # it keeps ending by itself

    def ended(self, code: int | None, lived_s: float, draw: float) -> float:
        """Notes an end; returns the seconds until the next start. ``code``: below 0 a signal; `None` if it could not
        even be started; ``draw``: uniform in [0, 1)."""
        policy = self._policy
        steady = lived_s > STEADY_S
        self._in_a_row = 0 if steady else self._in_a_row + 1
        self._failures = 0 if steady or (code is not None and code <= 0) else self._failures + 1
        refused = code in (USAGE_EXIT, ATTENTION_EXIT)
        self.failing = refused or self._failures >= FAILURES_MAX or self._in_a_row >= SHORT_LIVES_MAX
        wait = policy.waits_s[min(self._in_a_row, len(policy.waits_s) - 1)]
        if code == USAGE_EXIT:
            wait = max(wait, policy.usage_wait_s)
        return wait * (1.0 + policy.jitter * draw)

    def ended_by_operator(self) -> float:
        """Notes an operator's stop, which is not a failure; returns the seconds until the next start."""
        return self._policy.waits_s[0]

    def came_up(self) -> None:
        """Notes that the process is healthy, so its failure is over; the waits keep growing until it is steady."""
        self._failures = 0
        self.failing = False
