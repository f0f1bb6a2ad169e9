"""``photon status`` and ``photon status serve``: what a deployment does now."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from photon.cli import deployment_file
from photon.cli.errors import ATTENTION, DONE, FAILED
from photon.cli.looking import again, asking
from photon.cli.registry.common import print_json
from photon.cli.serve import _common, _datacentre, _load, _run

FETCH_S = 5.0
FREE_PORT = "127.0.0.1:0"
PAGE_BYTES_MAX = 64 << 20

Look = Callable[[], list[dict[str, Any]]]


@click.group(invoke_without_command=True)
@click.pass_context
@deployment_file.config(required=False, unless=["urls"])
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@click.option("--datacentre", metavar="NAME", help="Of this one only; else of all.")
@click.option(
    "--url", "urls", multiple=True, metavar="URL",
    help="In place of --config: a status page's address, http://host:port; may be given several times.",
)  # fmt: skip
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option(
    "--web", is_flag=True, help="Serve one datacentre's page from this machine and say where, until Ctrl-C."
)
@click.option(
    "--listen", metavar="HOST:PORT", help="With --web: where the page is; default: a free port of 127.0.0.1."
)
@click.option("--every", default=2.0, show_default=True, metavar="SECONDS", help="From one look to the next.")
@click.option("-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
def status(
    context: click.Context,
    config: Path | None,
    overrides: tuple[str, ...],
    datacentre: str | None,
    urls: tuple[str, ...],
    watch: bool,
    web: bool,
    listen: str | None,
    every: float,
    output_format: str,
) -> int:
    """Show what a deployment does now: rates, lag, queues, ledger, registry, alarms, for each datacentre.

    Asks all processes that the file names, with the operator's certificate; or, with --url, their status pages.

    \b
    Examples:
      photon status --config photon.toml
      photon status --config photon.toml --datacentre east --watch
      photon status --config photon.toml --datacentre east --web
      photon status --url http://127.0.0.1:8080 -o json
    Exit codes: 0 all is well, 3 something wants a person (shown under alarms), 1 nothing answers.
    """
    if context.invoked_subcommand is not None:
        return DONE
    if (config is None) == (not urls):
        raise click.UsageError("name a deployment file with --config, or status pages with --url")
    if web:
        if config is None or watch:
            raise click.UsageError("--web needs --config, and does not go with --url or --watch")
        _web(config, overrides, datacentre, listen or FREE_PORT, output_format)
        return DONE
    if listen is not None:
        raise click.UsageError("--listen goes with --web")
    with _looking(config, overrides, datacentre, urls, every) as look:
        return _show(look, output_format, every if watch else None)


@status.command("serve")
@_common
@_datacentre
@click.option("--listen", metavar="HOST:PORT", help="Where the page is; default: datacentre.NAME.status of the file.")
def serve(
    config: Path | None,
    overrides: tuple[str, ...],
    stop_with_parent: bool,
    datacentre: str | None,
    listen: str | None,
) -> None:
    """Serve a pipeline's status until SIGTERM: a page, /status.json, /metrics for Prometheus, /healthz.

    \b
    Example:
      photon status serve --config photon.toml --datacentre east --listen 127.0.0.1:8080
    """
    from photon.status.process import serve_status

    settings, base = _load(config, overrides)
    _run(lambda stop: serve_status(settings, base, datacentre, listen, stop), with_parent=stop_with_parent)


def _web(config: Path, overrides: tuple[str, ...], datacentre: str | None, listen: str, output_format: str) -> None:
    """The page, with the operator's certificate."""
    import logging

    from photon.config import log
    from photon.config.loader import load
    from photon.config.tls import OPERATOR
    from photon.status.process import serve_status

    log.configure(json=False, level=logging.WARNING)
    settings = load(config, environment=os.environ, flags=overrides)

    def serving(name: str, url: str) -> None:
        if output_format == "json":
            print_json({"datacentre": name, "url": url})
        else:
            click.echo(f"{url} shows {name}; Ctrl-C ends it")

    _run(
        lambda stop: serve_status(
            settings, config.parent, datacentre, listen, stop, identity=OPERATOR, serving=serving
        ),
        with_parent=False,
    )


def _show(look: Look, output_format: str, every: float | None) -> int:
    """Once, or with ``every`` (seconds) again and again."""
    from photon.cli.status_view import text

    def shown() -> list[dict[str, Any]]:
        said = look()
        if output_format == "json":
            print_json({"datacentres": said})
        else:
            if every is not None and os.isatty(1):
                click.clear()
            click.echo(text(said, time.time()))
        return said

    said = shown() if every is None else again(shown, every)
    if said is None:
        return DONE
    if not any(process["up"] for each in said for process in each["processes"]):
        return FAILED
    return ATTENTION if any(each["alarms"] for each in said) else DONE


@contextmanager
def _looking(
    config: Path | None, overrides: tuple[str, ...], datacentre: str | None, urls: tuple[str, ...], every: float
) -> Iterator[Look]:
    """Looks twice at first: rates need it."""
    if config is None:
        yield lambda: [_fetched(url) for url in urls]
        return
    from photon import __version__
    from photon.fleet.polling import seen_from
    from photon.status.view import View

    with asking(config, overrides, datacentre) as (settings, names, ask):
        views = {name: View(name, __version__, sorted(settings.datacentre.keys() - {name})) for name in names}

        def look() -> list[dict[str, Any]]:
            heard = ask()
            return [view.update(seen_from(heard, name), time.time()) for name, view in views.items()]

        look()
        time.sleep(min(every, 1.0))
        yield look


def _fetched(url: str) -> dict[str, Any]:
    """Of a status page. Raises PhotonError, UsageError."""
    import urllib.error
    import urllib.request

    import orjson

    from photon.config.errors import PhotonError, UsageError

    address = f"{url.rstrip('/')}/status.json"
    if not address.startswith(("http://", "https://")):
        raise UsageError(f"--url {url}: must begin with http:// or https://")
    try:
        with urllib.request.urlopen(address, timeout=FETCH_S) as reply:
            said = orjson.loads(reply.read(PAGE_BYTES_MAX))
    except (OSError, ValueError) as error:
        raise PhotonError(f"{address}: no status there ({error}); does photon status serve run?") from None
    if not isinstance(said, dict) or "processes" not in said:
        raise PhotonError(f"{address}: answers, but is no status of Photon")
    return said
