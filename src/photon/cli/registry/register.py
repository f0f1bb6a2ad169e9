"""``photon registry register-again``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.errors import ATTENTION, DONE
from photon.cli.registry.common import connected, deployment, formatted, loaded, print_json, print_table

if TYPE_CHECKING:
    from photon.config.settings import Settings
    from photon.idregistry.operations.client import OperatorClient


@click.command("register-again")
@deployment
@formatted
@click.option("--datacentre", metavar="NAME", multiple=True, help="Only its output; default: all that lie here.")
def register_again(config: Path, overrides: tuple[str, ...], output_format: str, datacentre: tuple[str, ...]) -> int:
    """Register what the outputs on this machine hold in a restored registry that is closed.

    \b
    Every line names its event and its token. Run it on each machine that outputs lie on, while the joiners are
    stopped; it may be repeated. What a redo log holds beyond the outputs the joiner registers itself, once the
    shards are open (photon registry restore --open). Re-reads of these lines count as duplicates in ledgers.
    Example:
      photon registry register-again --config new.toml
    Exit codes: 0 all is registered, 1 not all could be read or registered, 2 wrong usage, 3 some ids have another
    owner in the backup or no token: their records may be there twice.
    """
    from photon.config.errors import UsageError

    settings = loaded(config, overrides)
    unknown = [name for name in datacentre if name not in settings.datacentre]
    if not settings.datacentre:
        raise UsageError(f"{config}: has no [datacentre.NAME]: no pipeline, so no outputs to read")
    if unknown:
        known = ", ".join(sorted(settings.datacentre))
        raise UsageError(f"--datacentre {', '.join(unknown)}: not in the configuration; there are: {known}")
    with connected(settings, config.parent) as client:
        client.leader(0)  # waits while they start
        rows = [_of(client, settings, config.parent, name) for name in datacentre or settings.datacentre]
    if output_format == "json":
        print_json(rows)
    else:
        columns = [("datacentre", False), ("files", True), ("lines", True), ("registered", True), ("taken", True),
                   ("too old", True), ("without token", True)]  # fmt: skip
        print_table(columns, [[str(value) for value in row.values()] for row in rows])
    return ATTENTION if any(row["taken"] or row["without_token"] for row in rows) else DONE


def _of(client: OperatorClient, settings: Settings, base: Path, name: str) -> dict[str, Any]:
    from photon.embedded.registering import Registered, cleared_lengths, output_files, register_file
    from photon.embedded.services import key_path, read_key
    from photon.idregistry.api import Digester

    pipeline = settings.datacentre[name]
    digester = Digester(read_key(key_path(settings, base)), pipeline.join)
    ranges = client.ranges()
    done = Registered()
    files = output_files(base / pipeline.output)
    for file in files:
        lengths = cleared_lengths(base / pipeline.state / "slots" / file.slot)
        register_file(client, ranges, digester, name, file, lengths.get(file.name, 0), done)
    return {
        "datacentre": name,
        "files": len(files),
        "lines": done.lines,
        "registered": done.registered,
        "taken": done.taken,
        "too_old": done.too_old,
        "without_token": done.without_token,
    }
