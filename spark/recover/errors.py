"""What stops a repair. One line each."""

from __future__ import annotations

from photon.config.errors import PhotonError, UsageError


class ReportRefused(UsageError):
    """A report that must not be acted on: damaged, of another deployment, or changed since the repair began."""


class RepairsDamaged(PhotonError):
    """A file of the repairs log, or a journal, that cannot be read."""


class RegistrySilent(PhotonError):
    """The registry does not answer: what was done stays done, the same command goes on behind it."""
