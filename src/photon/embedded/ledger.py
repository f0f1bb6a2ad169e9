"""Where a pipeline's ledger lies, and how it is read for people and scripts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from photon.dispatcher.database import STATE_NAME
from photon.dispatcher.ledger import UNKNOWN_HOUR, Ledger
from photon.dispatcher.ledger_reader import read_ledger as _read

EMPTY = dict.fromkeys(
    ("read", "joined", "filtered", "unmatched", "late", "rejected", "elsewhere", "duplicate", "pending",
     "reread", "wasted", "retimed", "ambiguous"), 0
)  # fmt: skip


def ledger_file(state: Path) -> Path:
    """The dispatcher's database in a pipeline's state directory."""
    return state / STATE_NAME


def read_ledger(state: Path) -> dict[str, int]:
    """The totals, and what is counted apart; zeros while the dispatcher has not begun. Raises StateError."""
    path = ledger_file(state)
    if not path.exists():
        return dict(EMPTY)
    total = _read(path).total
    return total.as_dict() | total.apart()


def hour_name(hour: int) -> str:
    """``2026-11-21T09``, UTC."""
    if hour == UNKNOWN_HOUR:
        return "unknown"
    return datetime.fromtimestamp(hour * 3600, UTC).strftime("%Y-%m-%dT%H")


def as_json(ledger: Ledger) -> dict[str, object]:
    """Totals and hours, with what is counted apart."""
    return {
        "total": ledger.total.as_dict() | ledger.total.apart(),
        "hours": {hour_name(hour): line.as_dict() | line.apart() for hour, line in ledger.hours.items()},
        "balances": not ledger.unbalanced,
    }
