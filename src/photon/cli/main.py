"""Entry point of the ``photon`` command."""

import click


@click.group()
def main() -> None:
    """Join two endless logs exactly once over all datacentres."""
