"""``photon registry register-again``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli import steering
from photon.cli.audited import audited
from photon.cli.errors import ATTENTION, DONE
from photon.cli.registry.common import connected, deployment, formatted, loaded, print_json, print_table

if TYPE_CHECKING:
    from photon.config.settings import Settings
    from photon.idregistry.operate.operator_client import OperatorClient


@click.command("register-again")
@deployment
@formatted
@click.option("--datacentre", metavar="NAME", multiple=True, help="Only its output; default: all that lie here.")
@steering.sure
@audited
def register_again(
    config: Path,
    overrides: tuple[str, ...],
    output_format: str,
    datacentre: tuple[str, ...],
    dry_run: bool,
    yes: bool,
) -> int:
    """Register what the outputs on this machine hold in a restored registry that is closed.

    \b
    Every line names its event and its token. Run it on each machine that outputs lie on, while the joiners are
    stopped; it may be repeated. What a redo log holds beyond the outputs the joiner registers itself, once the
    shards are open (photon registry restore --open). Re-reads of these lines count as duplicates in ledgers.
    Examples:
      photon registry register-again --config new.toml --dry-run
      photon registry register-again --config new.toml --yes
    Exit codes: 0 all is registered, 1 not all could be read or registered, 2 wrong usage, 3 some ids have another
    owner in the backup or no token: their records may be there twice.
    """
    from photon.config.errors import UsageError

    steering.must_be_said("registering outputs again", dry_run=dry_run, yes=yes)
    settings = loaded(config, overrides)
    unknown = [name for name in datacentre if name not in settings.datacentre]
    if not settings.datacentre:
        raise UsageError(f"{config}: has no [datacentre.NAME]: no pipeline, so no outputs to read")
    if unknown:
        known = ", ".join(sorted(settings.datacentre))
        raise UsageError(f"--datacentre {', '.join(unknown)}: not in the configuration; there are: {known}")
    names = datacentre or tuple(settings.datacentre)
    with connected(settings, config.parent) as client:
        client.leader(0)  # waits while they start
        if dry_run:
            return _dry_run(client, settings, config.parent, names, output_format)
        steering.ask(f"Register what the outputs of {', '.join(names)} hold, under their tokens?", yes=yes)
        rows = [_of(client, settings, config.parent, name) for name in names]
    if output_format == "json":
        print_json(rows)
    else:
        columns = [("datacentre", False), ("files", True), ("lines", True), ("registered", True), ("taken", True),
                   ("too old", True), ("without token", True)]  # fmt: skip
        print_table(columns, [[str(value) for value in row.values()] for row in rows])
    return ATTENTION if any(row["taken"] or row["without_token"] for row in rows) else DONE


def _dry_run(client: OperatorClient, settings: Settings, base: Path, names: Sequence[str], output_format: str) -> int:
    """What would be registered. Raises PhotonError where it would be refused."""
    from photon.config.errors import PhotonError
    from photon.idregistry.operate.inspection import group_rows
    from photon.operations.register import counted, output_files

    if not any(row.closed for row in group_rows(client.inspect_all())):
        raise PhotonError("no shard is closed: outputs are registered again only in a registry that was restored")
    rows = []
    for name in names:
        files = output_files(base / settings.datacentre[name].output)
        done = counted(files)
        row = {"datacentre": name, "files": len(files), "lines": done.lines, "without_token": done.without_token}
        rows.append(row)
    if output_format == "json":
        print_json({"dry_run": True, "datacentres": rows})
        return DONE
    columns = [("datacentre", False), ("files", True), ("lines", True), ("without token", True)]
    print_table(columns, [[str(value) for value in row.values()] for row in rows])
    click.echo("they would be registered again; nothing was changed")
    return DONE


def _of(client: OperatorClient, settings: Settings, base: Path, name: str) -> dict[str, Any]:
    from photon.idregistry.api import Digester
    from photon.idregistry.client.deployment_key import key_path, read_key
    from photon.operations.register import Registered, cleared_lengths, output_files, register_file

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
