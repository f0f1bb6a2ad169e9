"""Opens tables as configured in ``[tables]`` of a deployment file."""

from __future__ import annotations

import os
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path

from photon.config.certificate_files import load as load_certificates
from photon.config.errors import UsageError
from photon.config.loader import load
from photon.config.settings import Settings
from photon.config.tls import OPERATOR, Tls
from photon.tables.store import on_hbase
from photon.tables.tables import Tables
from photon.tables.timestamps.client import RegistryOracle

# The identity whose certificate is presented to the registry's replicas, with ``[tls]``.
IDENTITY: ContextVar[str] = ContextVar("IDENTITY", default=OPERATOR)


def open_configured(path: Path) -> Tables:
    """Opens the tables of a deployment file. Raises ConfigError, UsageError, StoreFailed."""
    return open_tables(load(path, environment=os.environ), path.parent)


def open_tables(settings: Settings, base: Path) -> Tables:
    """Opens the tables of a deployment. ``base``: directory for relative paths in the settings. Raises UsageError,
    StoreFailed."""
    tables = settings.tables
    if tables is None:
        raise UsageError("tables: is not in the configuration; add [tables], with file or thrift")
    opened = _opened(settings, base)
    opened.around.limits.keep_s = tables.keep
    return opened


def _opened(settings: Settings, base: Path) -> Tables:
    tables = settings.tables
    assert tables is not None
    if not tables.thrift:
        return Tables.open(base / tables.file)
    replicas = settings.registry.replicas
    if not replicas:
        raise UsageError("tables.thrift: needs [registry.replicas.NAME]; the replicas hand out the timestamps")
    addresses = {name: replica.address for name, replica in replicas.items()}
    return Tables(on_hbase(tables.thrift, tables.table), RegistryOracle(addresses, _tls(settings, base)))


def _tls(settings: Settings, base: Path) -> Tls | None:
    if settings.tls is None:
        return None
    return load_certificates(base / settings.tls.directory, IDENTITY.get(), datetime.now(UTC))
