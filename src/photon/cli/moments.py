"""Times as options take them: the one way for all commands."""

from __future__ import annotations

NOW = "now"


def given_ns(option: str, value: str, now_ns: int) -> int:
    """``now``, ``2h`` (ago), an ISO date or time (UTC where no zone is named), epoch seconds -> ns UTC.

    ``option`` names it for people. Raises UsageError that says what would be right; for a time after ``now_ns`` too.
    """
    from photon.config.errors import UsageError
    from photon.config.units import moment_ns

    if value.strip() == NOW:
        return now_ns
    try:
        return moment_ns(value, now_ns)
    except ValueError as error:
        raise UsageError(f"{option} {value}: {error}, or now") from None
