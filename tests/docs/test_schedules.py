"""The schedules in the documents are well formed, and the commands in them exist with these options."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest

from photon.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"
_FIELD = re.compile(r"\*|[0-9]+(-[0-9]+)?(,[0-9]+)*|\*/[0-9]+")


def fenced(document: str) -> list[tuple[str, str]]:
    """(language, text) of each block."""
    pieces = re.split(r"^```(.*)\n", (DOCS / document).read_text(), flags=re.MULTILINE)
    return list(zip(pieces[1::4], pieces[2::4], strict=True))


def blocks(document: str, language: str) -> list[str]:
    found = [text for name, text in fenced(document) if name == language]
    assert found, f"{document} has no {language}"
    return found


def commands_in(text: str) -> list[list[str]]:
    """Words of each photon command, shell continued lines joined."""
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in map(str.strip, lines) if line.startswith("photon ")]


def check(words: list[str]) -> None:
    """The command is there, and so are its options; required ones are given."""
    command: click.Command = main
    context = click.Context(main)
    rest = words[1:]
    while isinstance(command, click.Group):
        found = command.get_command(context, rest[0])
        assert found is not None, words
        command, rest = found, rest[1:]
    known = {name: option for option in command.params if isinstance(option, click.Option) for name in option.opts}
    given = [word for word in rest if word.startswith("-")]
    assert [word for word in given if word not in known] == [], words
    assert [name for name, option in known.items() if option.required and not {*option.opts} & {*given}] == [], words


@pytest.mark.parametrize("document", ["verification.md", "spark.md"])
def test_photon_commands_in_shell_examples(document: str) -> None:
    text = (DOCS / document).read_text()
    indented = "\n".join(line for line in text.splitlines() if line.startswith("    photon "))
    found = [*commands_in(indented)]
    for language, block in fenced(document):
        found += commands_in(block) if language in ("", "bash", "sh") else []
    assert found
    for words in found:
        check(words)


def test_scripts() -> None:
    for script in blocks("verification.md", "bash"):
        done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_crontabs() -> None:
    for table in blocks("verification.md", "cron"):
        [line] = [line for line in table.splitlines() if not line.startswith("#")]
        fields = line.split(None, 6)
        assert all(_FIELD.fullmatch(field) for field in fields[:5])
        assert [int(field) for field in fields[:2]] == [30, 4]
        assert fields[5:7] == [
            "photon",
            "/usr/local/bin/photon-nightly /etc/photon/photon.toml /var/lib/photon/reports",
        ]
