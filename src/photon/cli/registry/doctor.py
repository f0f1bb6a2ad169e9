"""``photon registry doctor``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from photon.cli.errors import DONE, FAILED
from photon.cli.registry.common import connected, deployment, formatted, loaded, print_json, print_table

if TYPE_CHECKING:
    from photon.config.settings import Settings
    from photon.idregistry.operate.findings import CertificateEnd


@click.command()
@deployment
@formatted
def doctor(config: Path, overrides: tuple[str, ...], output_format: str) -> int:
    """Say what is wrong with the registry, and what to do.

    \b
    Looks at: replicas that do not answer, groups without a leader, replicas far behind, memberships that
    differ, clocks, disk space, alarms, shards that are closed, certificates that expire.
    Example:
      photon registry doctor --config photon.toml
    Exit codes: 0 nothing found, 1 something is wrong, 2 wrong configuration.
    """
    from photon.idregistry.operate.findings import Expected, findings

    settings = loaded(config, overrides)
    with connected(settings, config.parent) as client:
        found = client.measure_all()
    expected = Expected(
        {name: replica.address for name, replica in settings.registry.replicas.items()},
        settings.registry.epoch,
        settings.clock.uncertainty,
    )
    said = findings(found, expected, _certificates(settings, config.parent))
    if output_format == "json":
        print_json([{"level": e.level, "where": e.where, "what": e.what, "do": e.do} for e in said])
    elif said:
        columns = [("level", False), ("where", False), ("what", False), ("what to do", False)]
        print_table(columns, [[e.level, e.where, e.what, e.do] for e in said])
    else:
        click.echo(f"{len(found)} replicas: nothing found")
    return FAILED if said else DONE


def _certificates(settings: Settings, base: Path) -> list[CertificateEnd]:
    """Those that lie in this machine's directory."""
    from photon.config.certificates import CertificateError, facts, read_certificate
    from photon.fleet.processes import identities
    from photon.idregistry.operate.findings import CertificateEnd

    if settings.tls is None:
        return []
    directory = base / settings.tls.directory
    now = datetime.now(UTC)
    ends = []
    for name in ["ca", *identities(settings)]:
        path = directory / f"{name}.crt"
        if not path.exists():
            continue
        try:
            said = facts(read_certificate(path.read_bytes(), str(path)))
        except CertificateError as error:
            ends.append(CertificateEnd(name, None, why=str(error)))
        else:
            expired = said.ends <= now
            why = f"expired on {said.ends:%Y-%m-%d}" if expired else ""
            ends.append(CertificateEnd(name, None if expired else said.ends, said.expires_soon(now), why))
    return ends
