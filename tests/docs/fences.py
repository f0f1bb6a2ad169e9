"""The ``photon …`` commands that stand in the blocks of a document, in its prose and in the cells of its tables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^\s*```\s*([\w ]*)\s*$")
SPAN = re.compile(r"`([^`]+)`")
OPEN = re.compile(r"…|\.\.\.|[\[A-Z].*")  # from here on it is the reader's to fill in
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


def named_in(text: str) -> Iterator[tuple[int, list[str]]]:
    """(line, words from ``photon`` on) of each command between backticks, outside blocks. It may be cut short."""
    for number, line in _outside(text):
        for span in SPAN.findall(line):
            for words in _photon(span.replace("\\|", "|")):
                known = takewhile(lambda word: not OPEN.fullmatch(word), words)
                yield number, list(known)


def commands_in_tables(text: str) -> Iterator[tuple[int, str]]:
    """(line, first cell) of each row of a table of commands."""
    inside = False
    for number, line in _outside(text):
        if not line.lstrip().startswith("|"):
            inside = False
        elif (cell := re.split(r"(?<!\\)\|", line)[1].strip()) == "command":
            inside = True
        elif inside and set(cell) - set("-: "):
            yield number, cell


def _outside(text: str) -> Iterator[tuple[int, str]]:
    """Lines outside blocks."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            yield number, line


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
