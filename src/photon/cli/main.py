"""The ``photon`` command: the tree of its nouns and verbs. A command's module is imported when the command is called.

A read-only command is a PART of ``photon status`` or ``photon doctor``; a server process is a KIND of ``photon
serve``; any action is ``photon NOUN VERB``, a line in ``TASKS``.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from photon import __version__
from photon.cli.errors import DONE, OneLineErrors
from photon.cli.heads import Printed, formatted
from photon.config.garbage import collect_rarely

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # users see our one-line error instead
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")  # children exec another program at once

NOT_FOR_OTHERS = 0o027  # umask of every command, unless the caller's is stricter


class Noun(NamedTuple):
    """A command or a noun. ``about``: its line in ``photon --help``. ``at``: the place of its command, or of each
    verb's."""

    about: str
    at: str | Mapping[str, str]
    example: str = ""


# Nouns by task, in the order of ``photon --help``, which imports no commands.
TASKS: Mapping[str, Mapping[str, Noun]] = {
    "Join": {
        "join": Noun("Join two log directories exactly once.", "join:join"),
        "read": Noun("Print each record of an output once, continuing from a cursor.", "read:read"),
        "sink": Noun(
            "Copy an output into Parquet, PostgreSQL, Kafka or object storage.",
            {
                "parquet": "sink:parquet",
                "postgres": "sink:postgres",
                "kafka": "sink:kafka",
                "objects": "sink:objects",
            },
            "parquet out/ --into lake/clicks",
        ),
        "compute": Noun(
            "Run computations over joined records.",
            {
                "init": "compute:init",
                "run": "compute:run",
                "rescale": "compute:rescale",
                "reload": "compute:reload",
                "replay": "compute:replay",
            },
            "run spend.py",
        ),
        "table": Noun(
            "Run observers that keep tables up to date; inspect tables.",
            {"init": "table:init", "scan": "table:scan", "observe": "table:observe", "verify": "table:verify"},
            "scan clusters --database clicks.db",
        ),
        "demo": Noun("Join a live stream in two datacentres, kill one, verify the result.", "demo:demo"),
    },
    "Run": {
        "up": Noun("Run all processes of a deployment on this machine.", "up:up"),
        "down": Noun("Stop the processes of a deployment.", "running:down"),
        "restart": Noun("Restart processes one after another.", "running:restart"),
        "hold": Noun("Stop processes and keep them stopped until released.", "running:hold"),
        "release": Noun("Start held processes again.", "running:release"),
        "reload": Noun("Apply a changed deployment file.", "running:reload"),
        "serve": Noun("Run one process of a deployment.", "serve:serve"),
        "certs": Noun(
            "Create the certificates for mutual TLS.",
            {"issue": "certs:certs_issue", "for": "certs:certs_for"},
            "for photon.toml",
        ),
        "health": Noun("Check that a process is serving.", "main:health"),
    },
    "Look": {
        "status": Noun("Show what a deployment, or a part of it, is doing.", "status:status"),
        "watermark": Noun("Show up to which time an output is complete, or wait for a time.", "watermark:watermark"),
        "explain": Noun("Tell the story of one event.", "explain:explain"),
        "doctor": Noun("Find current and future problems.", "doctor:doctor"),
        "help": Noun("Explain a counter, a metric or a command.", "help:help_"),
    },
    "Repair": {
        "dispatcher": Noun(
            "Pause and resume reading; skip or replay a time range.",
            {
                "skip": "dispatcher:skip",
                "replay": "dispatcher:replay",
                "pause": "running:pause",
                "resume": "running:resume",
            },
            "skip --config photon.toml --datacentre east --to now",
        ),
        "joiner": Noun("Drain a joiner.", {"drain": "running:drain"}, "drain east-1 --config photon.toml"),
        "slot": Noun(
            "Retire a joiner slot whose disk is lost.",
            {"retire": "slot:retire"},
            "retire east-1 --config photon.toml --dry-run",
        ),
        "eventstore": Noun(
            "Create the HBase table; give up a deleted primary log.",
            {"init": "eventstore:init", "forget": "eventstore:forget"},
            "forget queries.log.7 --config photon.toml --datacentre east",
        ),
        "registry": Noun(
            "Back up, restore or reshard the registry; replace a replica.",
            {
                "transfer-leader": "registry.transfer:transfer_leader",
                "replace": "registry.replace:replace",
                "backup": "registry.backup:backup",
                "restore": "registry.restore:restore",
                "verify": "registry.backup:verify",
                "reshard": "registry.reshard:reshard",
            },
            "backup --config photon.toml backups/2026-11-21",
        ),
    },
    "Verify": {
        "verifier": Noun(
            "Acknowledge the continuous verifier's alarms.",
            {"acknowledge": "verifier:acknowledge"},
            "acknowledge --config photon.toml --datacentre east --dry-run",
        ),
        "spark": Noun(
            "On Spark: verify a day, repair losses, backfill an archive.",
            {
                "verify": "spark.verify:verify",
                "problems": "spark.findings:problems",
                "acknowledge": "spark.findings:acknowledge",
                "recover": "spark.recover:recover",
                "join": "spark.join:join",
                "backfill": "spark.backfill:backfill",
                "demo": "spark.demo:demo",
            },
            "verify --config photon.toml --from 2026-11-20 --to 2026-11-21 --report reports/",
        ),
        "chaos": Noun(
            "Inject faults into a deployment and verify every event.",
            {"run": "chaos:run", "fault": "chaos:fault"},
            "run short --directory /tmp/chaos",
        ),
        "wan": Noun(
            "Delay and cut traffic between regions on one machine.",
            {"serve": "wan:wan_serve", "set": "wan:wan_set"},
            "set east west --round-trip 100ms --control 127.0.0.1:7100",
        ),
        "feed": Noun(
            "Generate a test stream, and check how it was joined.",
            {"serve": "feed:serve", "day": "feed:day", "check": "feed:check"},
            "serve --into east/logs --into west/logs --rate 50",
        ),
    },
    "Build": {
        "adapter": Noun(
            "Test how logs are read; create an adapter package.",
            {"test": "adapter:test", "show": "adapter:show", "init": "adapter:init"},
            "test config/examples/zeek.toml --primary conn.log --foreign dns.log",
        ),
        "completion": Noun("Print shell completion.", "main:completion"),
    },
}

NOUNS: Mapping[str, Noun] = {name: noun for nouns in TASKS.values() for name, noun in nouns.items()}


class Tree(OneLineErrors):
    """A group whose commands are imported when called. ``lazily``: name -> its Noun, or the place of its command."""

    def __init__(self, *args: Any, lazily: Mapping[str, Noun | str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazily = lazily

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazily)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        found = self._lazily.get(name)
        if isinstance(found, Noun):
            if not isinstance(found.at, str):
                text = f"{found.about}\n\n\b\nExample:\n  photon {name} {found.example}"
                return Tree(name, lazily=found.at, help=text)
            found = found.at
        if found is None:
            return None
        module, _, attribute = found.partition(":")
        command = getattr(importlib.import_module(f"photon.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self._lazily is not NOUNS:
            super().format_commands(ctx, formatter)
            return
        for task, nouns in TASKS.items():
            with formatter.section(task):
                formatter.write_dl([(name, noun.about) for name, noun in nouns.items()], col_max=12)


def walk(
    command: click.Command, path: tuple[str, ...] = ("photon",)
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yields each command with its path, such as ``("photon", "slot", "retire")``, including groups, in the order of
    help."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, (*path, name)
            yield from walk(inner, (*path, name))


@click.group(
    cls=Tree, lazily=NOUNS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
@click.version_option(__version__, "--version", prog_name="photon", message="%(prog)s %(version)s")
def main(debug: bool) -> None:
    """Photon joins two continuous logs exactly once, across datacentres.

    photon COMMAND --help describes a command, with examples.

    \b
    Examples:
      photon join --primary queries/ --foreign clicks/ --output joined/ --once
      photon demo
      photon up photon.toml
      photon status --config photon.toml
    """
    collect_rarely()
    os.umask(os.umask(NOT_FOR_OTHERS) | NOT_FOR_OTHERS)


@click.command()
@click.argument("address", metavar="HOST:PORT")
@click.option("--tls", "certificates", type=click.Path(path_type=Path), envvar="PHOTON_HEALTH_TLS", show_envvar=True,
              help="Directory with ca.crt and a certificate with its key (default: plain text).")  # fmt: skip
@click.option("--identity", metavar="NAME", help="Name of the certificate, if the --tls directory has several.")
@click.option("--timeout", type=click.FloatRange(min=0.1, max=60.0), default=3.0, show_default=True,
              help="Seconds to wait for an answer.")  # fmt: skip
@click.option("--alive", is_flag=True, help="Succeed if the process answers at all. For liveness: restarting a "
                                           "replica without a majority does not help.")  # fmt: skip
@formatted
def health(
    address: str, certificates: Path | None, identity: str | None, timeout: float, alive: bool, out: Printed
) -> None:
    """Check that the process at HOST:PORT is serving; silent if it is. A container's health check.

    \b
    Uses the process's own certificate, so run it in the process's container or on its machine.
    Example:
      photon health 127.0.0.1:7001 --tls certs/ --identity registry-r1
    Exit codes: 0 it serves (with --alive: it answers); 1 it does not.
    """
    from photon.fleet.probe import probe

    probe(address, certificates, identity, timeout, alive=alive)
    if out.json:
        import json  # a health check imports the standard library only

        click.echo(json.dumps({"address": address, "alive" if alive else "serving": True}))


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@formatted
def completion(shell: str, out: Printed) -> int:
    """Print a script that makes SHELL complete photon's commands and options (-o json: as one string).

    \b
    Examples:
      photon completion bash > ~/.local/share/bash-completion/completions/photon
      photon completion zsh > ~/.zfunc/_photon
      photon completion fish > ~/.config/fish/completions/photon.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click knows all of them"
    script = kind(main, {}, "photon", "_PHOTON_COMPLETE").source()
    out.show({"shell": shell, "script": script}, script)
    return DONE
