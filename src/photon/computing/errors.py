"""Errors of computations."""

from __future__ import annotations

from photon.config.errors import PhotonError, UsageError


class TopologyError(UsageError):
    """The graph of computations cannot run."""


class ComputingError(PhotonError):
    """The engine or its store cannot continue."""


class Misused(Exception):
    """A computation asked for something impossible: a stream it does not have, an invalid time, or a state that
    cannot be stored."""


class Fenced(ComputingError):
    """Another owner has taken over this interval of keys. Nothing was written, and this owner must end."""


class Retired(ComputingError):
    """This interval was split or merged; ``successors`` have its keys."""

    def __init__(self, interval: str, successors: tuple[str, ...]) -> None:
        super().__init__(f"the interval {interval} was split or merged: its keys are now in {', '.join(successors)}")
        self.successors = successors
