"""What goes wrong with computations."""

from __future__ import annotations

from photon.config.errors import PhotonError, UsageError


class TopologyError(UsageError):
    """The graph of computations cannot be run."""


class ComputingError(PhotonError):
    """The engine or its store cannot go on."""


class Fenced(ComputingError):
    """Another owner has taken this interval of keys: nothing was written, and this one must end."""


class Retired(ComputingError):
    """This interval was split or merged; ``successors`` have its keys."""

    def __init__(self, interval: str, successors: tuple[str, ...]) -> None:
        super().__init__(f"the interval {interval} was split or merged: its keys are now in {', '.join(successors)}")
        self.successors = successors
