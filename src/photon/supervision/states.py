"""The state of each process of a supervisor, its description, and the time of its next restart.

Pure: exit codes, times and the random draw are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

# up: healthy, or alive without a health service · starting: alive, not healthy yet · not serving: was healthy, now
# reports that it cannot serve · silent: was healthy, does not answer · paused: by an operator's SIGSTOP · held:
# down until an operator releases it · restarting: stopped, will be started · failing: keeps stopping by itself,
# still retried · ended: permanently down, because the supervisor stops
Condition = Literal["up", "starting", "not serving", "silent", "paused", "held", "restarting", "failing", "ended"]
USAGE_EXIT = 2
ATTENTION_EXIT = 3  # something needs attention: another start would fail again
STEADY_S = 10.0  # after a run of this length, the restart delays start over
FAILURES_MAX = 3  # consecutive errors after which a process is failing; with exit code 2 or 3 it is failing at once
# Consecutive short runs, such as kills for lack of memory, after which a process is failing.
SHORT_LIVES_MAX = 20


class ServiceState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    datacentre: str
    pid: int | None
    state: Condition
    detail: str = ""  # the last line of its log, if the process is not up
    exit_code: int | None = None  # exit code of its last run, below 0 a signal; `None` if no run has ended
    restart_in_s: float | None = None
    uptime_s: float | None = None
    start_s: float | None = None  # how long its last start took; `None` until it was up
    restarts: int = 0
    address: str | None = None
    # Names of environment variables that only this process has, set by an injected fault.
    variables: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        again = "" if self.restart_in_s is None else f" in {self.restart_in_s:.0f} s"
        if self.state == "failing" and again:
            return f"failing, again{again}"
        return f"restarting{again}" if self.state == "restarting" else self.state


def summary(states: list[ServiceState]) -> str:
    """Returns ``all 12 processes are up``, or lists the processes that are not up."""
    wrong = [state for state in states if state.state != "up"]
    if not wrong:
        return f"all {len(states)} processes are up" if len(states) > 1 else "the process is up"
    named = "; ".join(
        f"{state.name} is {state.words}" + (f": {state.detail}" if state.detail else "") for state in wrong
    )
    return f"{len(wrong)} of {len(states)} processes are not up: {named}"


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    waits_s: tuple[float, ...]  # delay before the n-th consecutive restart; the last value applies to all later ones
    usage_wait_s: float = 0.0  # minimum delay after exit code 2, because a person must fix something first
    # Up to this share is added to a delay, so that processes that failed together restart at different times.
    jitter: float = 0.0
    gives_up: bool = True  # True: a failing service stops the supervisor's owner; False: it is retried forever


# For ``photon join`` and the demo: a failing service stops the command.
EMBEDDED = RestartPolicy((0.05, 0.2, 0.5, 1.0, 2.0, 5.0))
# For ``photon up``.
LONG_RUN = RestartPolicy((0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0), usage_wait_s=30.0, jitter=0.2, gives_up=False)


class Restarts:
    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._in_a_row = 0
        self._failures = 0
        self.failing = False  # it keeps stopping by itself

    def ended(self, code: int | None, lived_s: float, draw: float) -> float:
        """Records the end of a run. Returns the seconds until the next start. ``code``: exit code, below 0 a signal;
        `None` if the process could not even be started. ``draw``: uniform in [0, 1)."""
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
        """Records a stop by an operator, which is not a failure. Returns the seconds until the next start."""
        return self._policy.waits_s[0]

    def came_up(self) -> None:
        """Records that the process is healthy, so it is no longer failing. Delays keep growing until a run is long
        enough."""
        self._failures = 0
        self.failing = False
