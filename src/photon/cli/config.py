"""``photon doctor config``: checks whether a deployment file is usable, and lists what must still be created."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from photon.cli.errors import DONE
from photon.config.loader import load
from photon.config.settings import ADAPTER_PORTS, SIDES
from photon.objects.paths import placed

if TYPE_CHECKING:
    from photon.cli.heads import Deployed
    from photon.config.settings import Settings


def check(at: Deployed) -> int:
    """Implements ``photon doctor config``. Raises PhotonError."""
    found = checked(at.config, at.overrides)
    notes = [*found.hints, *found.missing]
    joins = sorted(found.settings.join)
    said = [f"{at.config}: valid; joins: {', '.join(joins) or 'none'}", *found.survives, *notes]
    at.show({"file": str(at.config), "joins": joins, "survives": found.survives, "notes": notes}, "\n".join(said))
    return DONE


class Checked(NamedTuple):
    """A valid deployment file, and notes about it as lines of text."""

    settings: Settings
    survives: list[str]  # a sentence that says which losses the registry survives
    # Things outside this machine that must be created once (not checked here), and processes that
    # run separately.
    hints: list[str]
    missing: list[str]  # things to create before the services can start


def checked(file: Path, overrides: tuple[str, ...] = ()) -> Checked:
    """Loads and checks a deployment file and its adapters. Raises PhotonError."""
    from photon.adapters.join_adapters import adapter_of
    from photon.config.extras import check_extras
    from photon.fleet import hbase
    from photon.fleet.processes import survives

    settings = load(file, environment=os.environ, flags=overrides)
    check_extras(settings)
    for name in settings.join:
        adapter_of(settings, name, file.parent)
    apart = [
        f"datacentre {name}: {', '.join(ADAPTER_PORTS)} run as separate processes: they call {each.join}'s adapter"
        for name, each in settings.datacentre.items()
        if settings.join[each.join].runs_user_code
    ]
    return Checked(settings, survives(settings), [*apart, *hbase.check(settings)], _missing(settings, file.parent))


def _missing(settings: Settings, base: Path) -> list[str]:
    """Lists the files to create before the services start. Raises UsageError for an unusable key or certificate."""
    from photon.idregistry.client.deployment_key import key_path, read_key

    notes = _certificates(settings, base)
    notes += [
        f"still to be made: the program {base / each.file} of observe.{name}"
        for name, each in settings.observe.items()
        if not (base / each.file).is_file()
    ]
    if not settings.datacentre:
        return notes
    path = key_path(settings, base)
    if path.exists():
        read_key(path)
    else:
        notes.append(f"still to be made: the key (head -c 32 /dev/urandom > {path})")
    for name, pipeline in settings.datacentre.items():
        notes += [
            f"still to be made: the log directory {placed(base, pipeline.logs(side))} of datacentre {name}"
            for side in SIDES
            if side not in settings.relayed(name) and not placed(base, pipeline.logs(side)).is_dir()
        ]
    return notes


def _certificates(settings: Settings, base: Path) -> list[str]:
    """Lists the certificates to create. Raises UsageError for an unusable one."""
    from photon.fleet.access import tls_of
    from photon.fleet.processes import identities

    if settings.tls is None:
        return []
    directory = base / settings.tls.directory
    missing = [name for name in identities(settings) if not (directory / f"{name}.crt").exists()]
    for name in identities(settings):
        if name not in missing:
            tls_of(settings, base, name)
    if not missing:
        return []
    return [f"still to be made: certificates of {', '.join(missing)} in {directory} (photon certs for FILE)"]
