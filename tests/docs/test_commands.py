"""Every ``photon …`` command in a document is one that Photon takes: its name, its options, what must be given.

That they do what the document says is for the tests that run them (``tests/integration/test_tutorial.py``,
``tests/integration/operations``, and others named there).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from photon.cli.main import main

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^\s*```\s*([\w ]*)\s*$")
HERE = re.compile(r"<<-?\s*['\"]?(\w+)")
SEPARATORS = ("|", "||", "&&", ";", "&", "(", ")", "{", "}", "then", "do", "if", "while", "!", "until", "$(", "time")


def commands_of(text: str) -> Iterator[tuple[int, list[str]]]:
    """(line, words from ``photon`` on) of each command in a block that is not shown output."""
    info: str | None = None
    end: str | None = None
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        fence = FENCE.match(line)
        if fence is not None:
            info, end = (fence[1] if info is None else None), None
            continue
        if info is None or info in ("text", "json", "toml", "python", "yaml", "proto", "ini"):
            continue
        if end is not None:
            end = None if line.strip() == end else end
            continue
        here = HERE.search(line)
        end = here[1] if here else None
        while line.rstrip().endswith("\\"):
            line = line.rstrip()[:-1] + next(lines)[1]
        yield from ((number, words) for words in _photon(line))


def _photon(line: str) -> Iterator[list[str]]:
    line = line.strip().removeprefix("$ ").replace("$(", " $( ").replace("`", " ")
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    try:
        words = list(lexer)
    except ValueError:
        return
    begin: int | None = None
    for at, word in enumerate([*words, ";"]):
        if begin is not None and (word in SEPARATORS or (word and set(word) <= set("|&;<>()"))):
            yield words[begin + 1 : at]
            begin = None
        elif begin is None and re.fullmatch(r"(\S*/)?photon", word) and (at == 0 or _begins(words[at - 1])):
            begin = at


def _begins(before: str) -> bool:
    return before in SEPARATORS or set(before) <= set("|&;()") or "=" in before or before in ("exec", "nohup", "sudo")


def _check(words: list[str]) -> str | None:
    """Why Photon would not take it; None: it does."""
    command: click.Command = main
    context = click.Context(main, info_name="photon")
    words = [re.sub(r"^([A-Z_]+|…|\.\.\.)$", "1", word) for word in words if word != "…"]
    while isinstance(command, click.Group):
        if "--help" in words or "-h" in words:
            return None
        try:
            _, words, _ = command.make_parser(context).parse_args(args=words)
        except click.UsageError as error:
            return error.format_message()
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
        return error.format_message()
    for parameter in command.params:  # not given: None, or click's own mark of that
        value = given.get(parameter.name or "")
        if parameter.required and (value in (None, ()) or type(value).__name__ == "Sentinel"):
            return f"{parameter.human_readable_name} is missing"
    return None


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_photon_takes_each_command(document: Path) -> None:
    wrong = [
        f"{document.name}:{number}: photon {' '.join(words)}: {why}"
        for number, words in commands_of(document.read_text())
        if (why := _check(words)) is not None
    ]
    assert wrong == []


def test_a_wrong_one_is_seen() -> None:
    text = "```sh\nphoton ledger out | photon frobnicate x\nphoton read --no-such out && echo x\nphoton up\n```\n"
    found = [_check(words) for _, words in commands_of(text)]
    assert found[0] is None
    assert [bool(each) for each in found[1:]] == [True, True, True]
    assert sum(1 for document in DOCUMENTS for _ in commands_of(document.read_text())) > 150
