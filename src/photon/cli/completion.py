"""``photon completion``: what a shell needs to complete photon's commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from photon.cli.errors import DONE

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.option("-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True,
              help="json: the script as one string.")  # fmt: skip
def completion(shell: str, output_format: str) -> int:
    """Print a script that makes SHELL complete photon's commands and options.

    \b
    Examples:
      photon completion bash > ~/.local/share/bash-completion/completions/photon
      photon completion zsh > ~/.zfunc/_photon
      photon completion fish > ~/.config/fish/completions/photon.fish
    """
    import orjson

    from photon.cli.main import main

    kind = get_completion_class(shell)
    assert kind is not None, "click knows all of SHELLS"
    script = kind(main, {}, "photon", "_PHOTON_COMPLETE").source()
    click.echo(orjson.dumps({"shell": shell, "script": script}).decode() if output_format == "json" else script)
    return DONE
