"""Every ``photon …`` command in a document is one that Photon takes: its name, its options, what must be given.

They are run by ``tests/integration/documents``, ``tests/spark/test_documents.py``,
``tests/integration/test_tutorial.py`` and ``tests/integration/operations``.
"""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from photon.cli.main import main
from tests.docs.fences import DOCUMENTS, ROOT, commands_in_tables, commands_of, named_in


def _check(words: list[str], exported: frozenset[str] = frozenset(), *, whole: bool = True) -> str | None:
    """Why Photon would not take it; None: it does. ``exported``: variables that are set. ``whole``: nothing that must
    be given is left out."""

    def cut_short(error: click.UsageError) -> bool:
        return not whole and "requires an argument" in error.message

    command: click.Command = main
    context = click.Context(main, info_name="photon")
    words = [re.sub(r"^([A-Z_]+|…|\.\.\.)$", "1", word) for word in words if word != "…"]
    while isinstance(command, click.Group):
        if "--help" in words or "-h" in words:
            return None
        try:
            _, words, _ = command.make_parser(context).parse_args(args=words)
        except click.UsageError as error:
            return None if cut_short(error) else error.format_message()
        if not words:
            return None  # the group's own help, or what it does without a command
        inner = command.get_command(context, words[0])
        if inner is None:
            return f"no command {words[0]!r}"
        command, context = inner, click.Context(inner, parent=context, info_name=words.pop(0))
    if "--help" in words or "-h" in words:
        return None
    try:
        given, _, _ = command.make_parser(context).parse_args(args=list(words))
    except click.UsageError as error:
        return None if cut_short(error) else error.format_message()
    for parameter in command.params:  # not given: None, or click's own mark of that
        value = given.get(parameter.name or "")
        absent = value in (None, ()) or type(value).__name__ == "Sentinel"
        if whole and parameter.required and absent and parameter.envvar not in exported:
            return f"{parameter.human_readable_name} is missing"
        known = parameter.type.choices if isinstance(parameter.type, click.Choice) else ()
        if known and isinstance(value, str) and value not in (*known, "1"):
            return f"{value} is none of {', '.join(known)}"
    return None


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_photon_takes_each_command(document: Path) -> None:
    exported = frozenset(re.findall(r"^export (\w+)=", document.read_text(), re.M))
    wrong = [
        f"{document.name}:{number}: photon {' '.join(words)}: {why}"
        for number, words in commands_of(document.read_text())
        if (why := _check(words, exported)) is not None
    ]
    assert wrong == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_photon_has_each_command_that_prose_and_tables_name(document: Path) -> None:
    text = document.read_text()
    wrong = [
        f"{document.name}:{number}: photon {' '.join(words)}: {why}"
        for number, words in named_in(text)
        if (why := _check(words, whole=False)) is not None
    ]
    assert wrong == []
    named = re.compile(r"`(photon|make|python|docker-compose) |with `--")
    assert [cell for _, cell in commands_in_tables(text) if not named.search(cell)] == []


def test_a_wrong_one_in_a_table_is_seen() -> None:
    text = "See `photon registry serve`, `photon up`.\n| command | what |\n| --- | --- |\n"
    text += "| `photon registry doctor`, `photon registry verify DIR` | it |\n| `members` | x |\n"
    found = [_check(words, whole=False) is None for _, words in named_in(text)]
    assert found == [False, True, False, True]
    assert list(commands_in_tables(text))[1:] == [(5, "`members`")]


def test_a_wrong_one_is_seen() -> None:
    text = "```sh\nphoton status lag | photon frobnicate x\nphoton read --no-such out && echo x\nphoton up\n```\n"
    text += "```sh\nphoton status nothing\n```\n"
    found = [_check(words) for _, words in commands_of(text)]
    assert found[0] is None
    assert [bool(each) for each in found[1:]] == [True, True, True, True]
    assert sum(1 for document in DOCUMENTS for _ in commands_of(document.read_text())) > 150
