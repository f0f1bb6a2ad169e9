"""The ``photon`` command: the tree of its nouns and verbs. Each is imported when it is called, for a quick start.

A command that looks is a PART of ``photon status`` or ``photon doctor`` (their tables), a process that serves is a
KIND of ``photon serve``; whatever acts is ``photon NOUN VERB``, a line in ``NOUNS`` here.
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
        "Write what a pipeline publishes in another form, each record once.",
        "parquet out/ --into lake/clicks",
        {"parquet": "sink:parquet"},
    ),
    "adapter": (
        "Look at how logs are read, and write what reads them: try a configuration on files, begin an adapter.",
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
        "The EventStore: key to primary event.",
        "forget queries.log.7 --config photon.toml --datacentre east",
        {"init": "eventstore:init", "forget": "eventstore:forget"},
    ),
    "joiner": (
        "The joiners: each looks up, registers and writes.",
        "drain east-1 --config photon.toml",
        {"drain": "running:drain"},
    ),
    "dispatcher": (
        "The dispatcher: reads foreign logs and sees to it that each event gets its verdict.",
        "skip --config photon.toml --datacentre east --to now",
        {
            "skip": "dispatcher:skip",
            "replay": "dispatcher:replay",
            "pause": "running:pause",
            "resume": "running:resume",
        },
    ),
    "verifier": (
        "The continuous verifier: checks what was published, clears tokens, raises alarms.",
        "acknowledge --config photon.toml --datacentre east --dry-run",
        {"acknowledge": "verifier:acknowledge"},
    ),
    "slot": (
        "The slots of joiners: retire one whose disk is gone.",
        "retire east-1 --config photon.toml --dry-run",
        {"retire": "slot:retire"},
    ),
    "spark": (
        "Verification, recovery and backfill on Spark: what outgrows one machine.",
        "verify --config photon.toml --from 2026-11-20 --to 2026-11-21 --report reports/",
        {"verify": "spark.verify:verify", "recover": "spark.recover:recover", "backfill": "spark.backfill:backfill"},
    ),
    "chaos": (
        "Do faults to a running deployment, heal it, and verify every event.",
        "run short --directory /tmp/chaos",
        {"list": "chaos:list_", "run": "chaos:run", "fault": "chaos:fault", "heal": "chaos:heal"},
    ),
    "wan": (
        "Delay and cut what passes between regions on one machine.",
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
"""In the order of help. Noun -> module:command in photon.cli; or what it is, an example, and its verbs."""

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
"""Names of before -> what does it now."""


class Tree(OneLineErrors):
    """A group whose commands are imported when they are called. ``lazily``: as ``NOUNS``."""

    def __init__(self, *args: Any, lazily: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazily = lazily

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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises UsageError, with what does it now, for a name of before."""
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
    cls=Tree, lazily=NOUNS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, "--version", prog_name="photon", message="%(prog)s %(version)s")
def main(debug: bool) -> None:
    """Join two endless logs exactly once over all datacentres.

    Five commands look: status, top, ledger, explain, doctor. A process runs with serve. The rest acts: photon NOUN
    VERB, or a verb alone where the noun would be the deployment.

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
              help="Directory of ca.crt and the process's own pair; without it plain text is spoken.")  # fmt: skip
@click.option("--identity", metavar="NAME", help="Which pair of --tls, where it holds several.")
@click.option("--timeout", type=click.FloatRange(min=0.1, max=60.0), default=3.0, show_default=True, help="Seconds.")
@formatted
def health(address: str, certificates: Path | None, identity: str | None, timeout: float, out: Printed) -> None:
    """Ask the process at HOST:PORT whether it serves: the health check of a container. Silent when it does.

    \b
    It shows the process's own certificate, so it is run beside the process, in its container or on its machine.
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
