"""The ``photon`` command: the tree of its nouns and verbs. A command is imported when it is called.

A command that looks is a PART of ``photon status`` or ``photon doctor`` (their tables), a process that serves is a
KIND of ``photon serve``; whatever acts is ``photon NOUN VERB``, a line in ``NOUNS`` and one in ``TASKS``.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from photon import __version__
from photon.cli.errors import DONE, OneLineErrors
from photon.cli.heads import Printed, formatted
from photon.config.errors import UsageError

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what matters to a person comes as an error of ours, in one line
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")  # children execute another program at once

NOUNS: Mapping[str, str | tuple[str, str, dict[str, str]]] = {
    "join": "join:join",
    "demo": "demo:demo",
    "up": "up:up",
    "down": "running:down",
    "restart": "running:restart",
    "hold": "running:hold",
    "release": "running:release",
    "reload": "running:reload",
    "status": "status:status",
    "top": "top:top",
    "ledger": "ledger:ledger",
    "watermark": "watermark:watermark",
    "explain": "explain:explain",
    "doctor": "doctor:doctor",
    "read": "read:read",
    "serve": "serve:serve",
    "sink": (
        "Write a pipeline's output in another form, each record once.",
        "parquet out/ --into lake/clicks",
        {"parquet": "sink:parquet", "objects": "sink:objects"},
    ),
    "compute": (
        "Computations over what is published: state per key, timers, watermarks; each record once.",
        "run spend.py",
        {
            "init": "compute:init",
            "run": "compute:run",
            "status": "compute:status",
            "rescale": "compute:rescale",
            "reload": "compute:reload",
        },
    ),
    "adapter": (
        "Try a configuration on files; start an adapter of your own.",
        "test config/examples/zeek.toml --primary conn.log --foreign dns.log",
        {"test": "adapter:test", "show": "adapter:show", "init": "adapter:init"},
    ),
    "certs": (
        "Make the certificates for mutual TLS between the processes of a deployment.",
        "for photon.toml",
        {"init": "certs:certs_init", "issue": "certs:certs_issue", "for": "certs:certs_for"},
    ),
    "registry": (
        "The IdRegistry: the replicated set of event ids that have a verdict.",
        "backup --config photon.toml backups/2026-11-21",
        {
            "transfer-leader": "registry.transfer:transfer_leader",
            "replace": "registry.replace:replace",
            "backup": "registry.backup:backup",
            "export": "registry.backup:export",
            "restore": "registry.restore:restore",
            "register-again": "registry.register:register_again",
            "verify": "registry.verify:verify",
            "reshard": "registry.reshard:reshard",
        },
    ),
    "eventstore": (
        "The event store finds the primary event of a key.",
        "forget queries.log.7 --config photon.toml --datacentre east",
        {"init": "eventstore:init", "forget": "eventstore:forget"},
    ),
    "joiner": (
        "Joiners look events up, register and write them.",
        "drain east-1 --config photon.toml",
        {"drain": "running:drain"},
    ),
    "dispatcher": (
        "The dispatcher reads foreign logs until each event has its verdict.",
        "skip --config photon.toml --datacentre east --to now",
        {
            "skip": "dispatcher:skip",
            "replay": "dispatcher:replay",
            "pause": "running:pause",
            "resume": "running:resume",
        },
    ),
    "verifier": (
        "The continuous verifier checks what was published, clears tokens and raises alarms.",
        "acknowledge --config photon.toml --datacentre east --dry-run",
        {"acknowledge": "verifier:acknowledge"},
    ),
    "slot": (
        "Slots of joiners: retire one whose disk is gone.",
        "retire east-1 --config photon.toml --dry-run",
        {"retire": "slot:retire"},
    ),
    "table": (
        "Tables kept up to date by transactions and observers.",
        "scan clusters --database clicks.db",
        {
            "init": "table:init",
            "get": "table:get",
            "scan": "table:scan",
            "locks": "table:locks",
            "observe": "table:observe",
            "verify": "table:verify",
        },
    ),
    "spark": (
        "Verification, recovery and backfill on Spark.",
        "verify --config photon.toml --from 2026-11-20 --to 2026-11-21 --report reports/",
        {"verify": "spark.verify:verify", "recover": "spark.recover:recover", "backfill": "spark.backfill:backfill"},
    ),
    "chaos": (
        "Inject faults into a running deployment, heal it, and verify every event.",
        "run short --directory /tmp/chaos",
        {"list": "chaos:list_", "run": "chaos:run", "fault": "chaos:fault", "heal": "chaos:heal"},
    ),
    "wan": (
        "Delay and cut traffic between regions on one machine.",
        "set east west --round-trip 100ms --control 127.0.0.1:7100",
        {"serve": "wan:wan_serve", "set": "wan:wan_set", "cut": "wan:wan_cut", "heal": "wan:wan_heal"},
    ),
    "feed": (
        "Write a generated stream of queries and clicks, and check what became of it.",
        "serve --into east/logs --into west/logs --rate 50",
        {"serve": "feed:serve", "check": "feed:check"},
    ),
    "health": "main:health",
    "completion": "main:completion",
}
"""Noun -> module:command in photon.cli; or what it is, an example, and its verbs."""

TASKS: Mapping[str, Mapping[str, str]] = {
    "Join": {
        "join": "Join two log directories exactly once.",
        "read": "Print the records of an output, each once, from a cursor on.",
        "sink": "Write an output as Parquet files, or its files to an object store.",
        "compute": "Run computations over what was joined.",
        "table": "Keep tables up to date by transactions and observers; look into them.",
        "demo": "Join a live stream in two datacentres, lose one, verify all.",
    },
    "Run": {
        "up": "Run all processes of a deployment on this machine.",
        "down": "End the processes of a deployment.",
        "restart": "Restart processes, one after the other.",
        "hold": "End processes until they are released.",
        "release": "Start held processes again.",
        "reload": "Apply a changed deployment file.",
        "serve": "Run one process of a deployment.",
        "certs": "Make the certificates for mutual TLS.",
        "health": "Ask one process whether it serves.",
    },
    "Look": {
        "status": "Show what a deployment, or a part of it, is doing.",
        "top": "Show the busiest processes, slots, logs and shards.",
        "ledger": "Show what became of everything that was read, by hour.",
        "watermark": "Show up to which time an output is complete, or wait for it.",
        "explain": "Tell the story of one event.",
        "doctor": "Find what is wrong, or soon will be.",
    },
    "Repair": {
        "dispatcher": "Pause and resume reading; skip or replay a time range.",
        "joiner": "Drain a joiner.",
        "slot": "Retire a slot whose disk is gone.",
        "eventstore": "Create the file map in HBase; give up a deleted primary log.",
        "registry": "Back up, restore, reshard; replace a replica.",
    },
    "Verify": {
        "verifier": "Acknowledge alarms of the continuous verifier.",
        "spark": "Verify a day, repair losses, backfill an archive, on Spark.",
        "chaos": "Inject faults into a deployment and verify every event.",
        "wan": "Delay and cut traffic between regions on one machine.",
        "feed": "Write a generated stream, and check what became of it.",
    },
    "Build": {
        "adapter": "Try how logs are read; start an adapter of your own.",
        "completion": "Print shell completion.",
    },
}
"""By task, as ``photon --help`` shows the nouns: each in one line, without importing its command."""

MOVED: Mapping[str, str] = {
    "ps": "status processes --config FILE",
    "audit": "status audit",
    "version": "--version",
    "config check": "doctor config --config FILE",
    "certs show": "status certificates PATH",
    "adapter list": "adapter show",
    "registry status": "status registry",
    "registry members": "status members",
    "registry doctor": "doctor registry",
    "registry reshard plan": "registry reshard --shards N --dry-run",
    "registry reshard apply": "registry reshard --shards N",
    "registry reshard abort": "registry reshard --abort",
    "registry reshard status": "status shards",
    "registry reshard verify": "registry verify --shards",
    "eventstore status": "status eventstore",
    "cache status": "status cache",
    "dispatcher lag": "status lag",
    "verifier status": "status verifier",
    "slot list": "status slots",
    "slot show": "status slots NAME",
    "wan list": "status wan",
    "registry serve": "serve registry NAME",
    "eventstore serve": "serve eventstore",
    "cache serve": "serve cache NAME",
    "joiner serve": "serve joiner NAME",
    "dispatcher serve": "serve dispatcher NAME",
    "verifier serve": "serve verifier",
    "pipeline serve": "serve pipeline",
    "copies serve": "serve copies",
    "status serve": "serve status",
}
"""Former names -> what does it now."""


class Tree(OneLineErrors):
    """A group whose commands are imported when they are called. ``lazily``: as ``NOUNS``; ``tasks``: as ``TASKS``."""

    def __init__(
        self,
        *args: Any,
        lazily: Mapping[str, Any],
        tasks: Mapping[str, Mapping[str, str]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._lazily = lazily
        self._tasks = tasks

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazily)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        found = self._lazily.get(name)
        if found is None:
            return None
        if not isinstance(found, str):
            about, example, verbs = found
            return Tree(name, lazily=verbs, help=f"{about}\n\n\b\nExample:\n  photon {name} {example}")
        module, _, attribute = found.partition(":")
        command = getattr(importlib.import_module(f"photon.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self._tasks is None:
            super().format_commands(ctx, formatter)
            return
        for task, lines in self._tasks.items():
            with formatter.section(task):
                formatter.write_dl([*lines.items()], col_max=12)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises UsageError, with the new name, for a former one."""
        words = [*_path(ctx), *args[:3]]
        for count in range(len(words), 0, -1):
            if (now := MOVED.get(old := " ".join(words[:count]))) is not None:
                raise UsageError(f"photon {old} is now: photon {now}")
        return super().resolve_command(ctx, args)


def _path(context: click.Context) -> list[str]:
    """``["registry"]``, however photon itself was called."""
    names: list[str] = []
    while context.parent is not None:
        names.insert(0, context.info_name or "")
        context = context.parent
    return names


def walk(
    command: click.Command, path: tuple[str, ...] = ("photon",)
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """(``("photon", "slot", "retire")``, its command), groups included, in the order of help."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, (*path, name)
            yield from walk(inner, (*path, name))


@click.group(
    cls=Tree,
    lazily=NOUNS,
    tasks=TASKS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, "--version", prog_name="photon", message="%(prog)s %(version)s")
def main(debug: bool) -> None:
    """Photon joins two endless logs exactly once, over all datacentres.

    photon COMMAND --help describes a command, with examples.

    \b
    Examples:
      photon join --primary queries/ --foreign clicks/ --output joined/ --once
      photon demo
      photon up photon.toml
      photon status --config photon.toml
    """


@click.command()
@click.argument("address", metavar="HOST:PORT")
@click.option("--tls", "certificates", type=click.Path(path_type=Path), envvar="PHOTON_HEALTH_TLS", show_envvar=True,
              help="Directory with ca.crt and the process's own pair; without it plain text.")  # fmt: skip
@click.option("--identity", metavar="NAME", help="Which pair of --tls, if it has several.")
@click.option("--timeout", type=click.FloatRange(min=0.1, max=60.0), default=3.0, show_default=True, help="Seconds.")
@formatted
def health(address: str, certificates: Path | None, identity: str | None, timeout: float, out: Printed) -> None:
    """Ask the process at HOST:PORT whether it serves; silent when it does. A container's health check.

    \b
    It uses the process's own certificate, so run it in the process's container or on its machine.
    Example:
      photon health 127.0.0.1:7001 --tls certs/ --identity registry-r1
    Exit codes: 0 it serves, 1 it does not, or does not answer.
    """
    from photon.fleet.probe import probe

    probe(address, certificates, identity, timeout)
    if out.json:
        import json  # of the standard library, as all that a health check imports

        click.echo(json.dumps({"address": address, "serving": True}))


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
    assert kind is not None, "click knows all of these"
    script = kind(main, {}, "photon", "_PHOTON_COMPLETE").source()
    out.show({"shell": shell, "script": script}, script)
    return DONE
