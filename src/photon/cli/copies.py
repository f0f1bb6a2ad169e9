"""``photon serve copies``: keeps copies of other datacentres' output."""

from __future__ import annotations

from pathlib import Path

import click

from photon.cli.serve import _common, _datacentre, _load, _run


@click.group()
def copies() -> None:
    """Copies of output in another datacentre.

    \b
    Example:
      photon serve copies --config photon.toml --datacentre west
    """


@copies.command("serve")
@_common
@_datacentre
def copies_serve(
    config: Path | None, overrides: tuple[str, ...], stop_with_parent: bool, datacentre: str | None
) -> None:
    """Run a datacentre's keeper of copies until SIGTERM (docs/output.md).

    \b
    Example:
      photon serve copies --config photon.toml --datacentre west
    """
    from photon.embedded.copying import serve_copies

    settings, base = _load(config, overrides)
    _run(lambda stop: serve_copies(settings, base, datacentre, stop), with_parent=stop_with_parent)
