"""``photon registry register-again``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from photon.cli.audited import audited
from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import Deployed, ask, deployed, must_be_said, sure
from photon.cli.tables import print_table

if TYPE_CHECKING:
    from photon.idregistry.operate.operator_client import OperatorClient


@click.command("register-again")
@click.option(
    "--datacentre", "only", metavar="NAME", multiple=True, help="Only its output; default: all on this machine."
)
@sure
@deployed()
@audited
def register_again(at: Deployed, only: tuple[str, ...], dry_run: bool, yes: bool) -> int:
    """Register what the outputs on this machine hold in a restored registry that is closed.

    \b
    Every line names its event and its token. Run it on each machine that has outputs, while the joiners are
    stopped; it may be repeated. What a redo log holds beyond the outputs the joiner registers itself, once the
    shards are open (photon registry restore --open). Re-reads of these lines count as duplicates in ledgers.
    Examples:
      photon registry register-again --config new.toml --dry-run
      photon registry register-again --config new.toml --yes
    Exit codes: 0 all is registered, 1 not all could be read or registered, 2 wrong usage, 3 some ids have another
    owner in the backup or no token: their records may be there twice.
    """
    from photon.config.errors import UsageError

    must_be_said("registering outputs again", dry_run=dry_run, yes=yes)
    settings = at.with_registry
    unknown = [name for name in only if name not in settings.datacentre]
    if not settings.datacentre:
        raise UsageError(f"{at.config}: has no [datacentre.NAME]: no pipeline, so no outputs to read")
    if unknown:
        known = ", ".join(sorted(settings.datacentre))
        raise UsageError(f"--datacentre {', '.join(unknown)}: not in the configuration; there are: {known}")
    names = only or tuple(settings.datacentre)
    with at.registry() as client:
        client.leader(0)  # waits while they start
        if dry_run:
            return _dry_run(at, client, names)
        ask(f"Register what the outputs of {', '.join(names)} hold, under their tokens?", yes=yes)
        rows = [_of(at, client, name) for name in names]
    columns = "datacentre, >files, >lines, >registered, >taken, >too old, >without token"
    at.show(rows, lambda: _table(columns, rows))
    return ATTENTION if any(row["taken"] or row["without_token"] for row in rows) else DONE


def _table(columns: str, rows: Sequence[dict[str, Any]]) -> None:
    print_table(columns, [[str(value) for value in row.values()] for row in rows])


def _dry_run(at: Deployed, client: OperatorClient, names: Sequence[str]) -> int:
    """Shows what would be registered. Raises PhotonError if it would be refused."""
    from photon.config.errors import PhotonError
    from photon.idregistry.operate.inspection import group_rows
    from photon.operations.register import counted, output_files

    if not any(row.closed for row in group_rows(client.inspect_all())):
        raise PhotonError("no shard is closed: outputs are registered again only in a registry that was restored")
    rows = []
    for name in names:
        files = output_files(at.base / at.settings.datacentre[name].output)
        done = counted(files)
        row = {"datacentre": name, "files": len(files), "lines": done.lines, "without_token": done.without_token}
        rows.append(row)

    def people() -> None:
        _table("datacentre, >files, >lines, >without token", rows)
        click.echo("they would be registered again; nothing was changed")

    at.show({"dry_run": True, "datacentres": rows}, people)
    return DONE


def _of(at: Deployed, client: OperatorClient, name: str) -> dict[str, Any]:
    from photon.idregistry.api import Digester
    from photon.idregistry.client.deployment_key import key_path, read_key
    from photon.operations.register import Registered, cleared_lengths, output_files, register_file

    pipeline = at.settings.datacentre[name]
    digester = Digester(read_key(key_path(at.settings, at.base)), pipeline.join)
    ranges = client.ranges()
    done = Registered()
    files = output_files(at.base / pipeline.output)
    for file in files:
        lengths = cleared_lengths(at.base / pipeline.state / "slots" / file.slot)
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
