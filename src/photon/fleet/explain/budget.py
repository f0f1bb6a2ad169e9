"""How long a search may take, and who hears how far it is. The clock is passed in."""

from __future__ import annotations

from collections.abc import Callable

CHUNK_BYTES = 4 << 20
"""Read and searched at once."""


class Budget:
    """Shared by the searches of one question."""

    def __init__(
        self,
        seconds: float,
        monotonic: Callable[[], float],
        progress: Callable[[str, int], None] = lambda what, total: None,
    ) -> None:
        """``progress(file, bytes searched so far)`` is called before each chunk."""
        self._until = monotonic() + seconds
        self._monotonic = monotonic
        self._progress = progress
        self._seconds = seconds
        self._total = 0

    @property
    def over(self) -> bool:
        return self._monotonic() >= self._until

    @property
    def left_s(self) -> float:
        """Seconds; not below 0."""
        return max(self._until - self._monotonic(), 0.0)

    @property
    def why(self) -> str:
        """What is said where it was over."""
        return f"not to its end: the search was given {self._seconds:g} s"

    def spend(self, what: str, count: int) -> None:
        """So many bytes more were searched."""
        self._total += count
        self._progress(what, self._total)
