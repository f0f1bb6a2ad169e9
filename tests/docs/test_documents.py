"""What the documents name exists; what a command's help promises is there."""

import re
from pathlib import Path

import click
import pytest

from photon.cli.main import main, walk

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
ROOMS = "adapters|bench|config|dispatcher|eventstore|idregistry|joiner|spark|tests|docs|src"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_file_that_a_document_names_exists(document: Path) -> None:
    text = document.read_text()
    named = re.findall(rf"`((?:{ROOMS})/[\w./-]*)`", text)
    linked = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    missing = [name for name in named if not (ROOT / name).exists()]
    missing += [link for link in linked if not (document.parent / link).exists()]
    assert missing == []


COMMANDS = list(walk(main))  # groups of commands as well


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(path) for path, _ in COMMANDS])
def test_each_command_s_help_has_an_example(path: tuple[str, ...], command: click.Command) -> None:
    shown = command.get_help(click.Context(command, info_name=" ".join(path[1:]) or "photon"))
    assert "Example" in shown
    assert f"photon {' '.join(path[1:])}" in shown
    assert not re.findall(r"^  \w.*\.\.\.$", shown.partition("Commands:")[2], re.MULTILINE), "help is cut off"
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help or parameter.name in ("seconds", "seed", "output_format"), parameter.name
