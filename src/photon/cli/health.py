"""``photon health``: what the health check of a container runs."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("address", metavar="HOST:PORT")
@click.option(
    "--tls",
    "certificates",
    type=click.Path(path_type=Path),
    envvar="PHOTON_HEALTH_TLS",
    show_envvar=True,
    help="Directory of ca.crt and the process's own pair; without it plain text is spoken.",
)
@click.option("--identity", metavar="NAME", help="Which pair of --tls, where it holds several.")
@click.option("--timeout", type=click.FloatRange(min=0.1, max=60.0), default=3.0, show_default=True, help="Seconds.")
@click.option("-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
def health(address: str, certificates: Path | None, identity: str | None, timeout: float, output_format: str) -> None:
    """Ask the process at HOST:PORT whether it serves. Silent when it does.

    \b
    It shows the process's own certificate, so it is run beside the process, in its container or on its machine.
    Example:
      photon health 127.0.0.1:7001 --tls certs/ --identity registry-r1
    Exit codes: 0 it serves, 1 it does not, or does not answer.
    """
    from photon.fleet.probe import probe

    probe(address, certificates, identity, timeout)
    if output_format == "json":
        import json  # of the standard library, as all that a health check imports

        click.echo(json.dumps({"address": address, "serving": True}))
