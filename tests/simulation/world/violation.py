"""The simulations' findings, and the schedule that shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class Violation(AssertionError):
    """The system broke a promise."""


class ViolationInCallback(BaseException):
    """A Violation on its way out through code under test that logs a callback's exception and continues."""


@contextmanager
def of_seed(seed: int, story: Sequence[str] | None = None) -> Iterator[None]:
    """A Violation with the replay command and, if it was kept, the story until then."""
    try:
        yield
    except Violation as violation:
        violation.args = (
            "\n".join([f"seed {seed}: {violation} (replay with: make sim SEED={seed})", *(story or ())]),
        )
        raise
