"""Runbooks (``docs/operations/*.md``) as steps that a test carries out. Pure.

A test interprets a runbook in order:

- A block ``sh``: run as written, by ``bash -eu -o pipefail``, in the directory of ``photon.toml``. Variables
  and functions of a block are available in the blocks after it.
- A block ``sh show``: not run: another form of the step (docker-compose), or one for another machine.
- A block ``text``: each of its lines is in the output of the block before it, on either stream; ``…`` matches
  anything, and the number of blanks does not matter.
- ``<!-- test: exit 3 -->``: the exit code of the next block; 0 without it.
- ``<!-- test: only with copies -->``: the next block is for deployments of that kind (``site.KINDS``).
- ``<!-- test: WORDS -->``, anything else: an event that happens now. The test finds it by these words (events.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DIRECTORY = Path(__file__).parents[3] / "docs" / "operations"
_DIRECTION = re.compile(r"<!-- test: (.*) -->")
_EXIT = re.compile(r"exit ([0-9]+)")
_ONLY = re.compile(r"only (.*)")
LANGUAGES = ("sh", "sh show", "text", "toml", "yaml", "python")


class Malformed(Exception):
    """A runbook that cannot be carried out: file, line, what."""


@dataclass(frozen=True, slots=True)
class Run:
    """A block to run."""

    line: int  # line of the document where it begins
    script: str
    code: int = 0
    expected: str = ""  # its expected output; empty: any
    only: str = ""  # the kind of deployment that it is for; empty: all


@dataclass(frozen=True, slots=True)
class Happens:
    """Something that the test does."""

    line: int
    what: str


def steps(name: str, text: str) -> list[Run | Happens]:
    """Steps of a document. Raises Malformed."""
    found: list[Run | Happens] = []
    code: int | None = None
    only = ""
    for line, info, body in _pieces(name, text):
        if info is None:
            if exit_code := _EXIT.fullmatch(body):
                code = int(exit_code[1])
            elif condition := _ONLY.fullmatch(body):
                only = condition[1]
            else:
                found.append(Happens(line, body))
        elif info == "sh":
            found.append(Run(line, body, code or 0, only=only))
            code, only = None, ""
        elif info == "text":
            found.append(_expecting(name, line, found.pop() if found else None, body))
        elif info not in LANGUAGES:
            raise Malformed(f"{name}:{line}: a block of {info!r}; there are: {', '.join(LANGUAGES)}")
    if code is not None or only:
        raise Malformed(f"{name}: an exit code or a condition that no block has")
    return found


def _pieces(name: str, text: str) -> Iterator[tuple[int, str | None, str]]:
    """(line, info, text) of each block; a direction has no info. Raises Malformed."""
    lines = enumerate(text.splitlines(), 1)
    for line, words in lines:
        if words.startswith("```"):
            inside: list[str] = []
            for _, each in lines:
                if each.startswith("```"):
                    break
                inside.append(each)
            else:
                raise Malformed(f"{name}:{line}: a block that does not end")
            yield line, words.removeprefix("```"), "".join(f"{each}\n" for each in inside)
        elif "<!-- test:" in words:
            direction = _DIRECTION.fullmatch(words)
            if direction is None:
                raise Malformed(f"{name}:{line}: a direction that is not a line of its own")
            yield line, None, direction[1]


def _expecting(name: str, line: int, before: Run | Happens | None, text: str) -> Run:
    if not isinstance(before, Run) or before.expected:
        raise Malformed(f"{name}:{line}: says what no block before it has said")
    return Run(before.line, before.script, before.code, text, before.only)


def missing(expected: str, said: str) -> list[str]:
    """Lines of ``expected`` that are missing in ``said``."""
    lines = [" ".join(line.split()) for line in said.splitlines()]
    return [line for line in expected.splitlines() if line.strip() and not any(_is(line, each) for each in lines)]


def _is(expected: str, line: str) -> bool:
    pattern = ".*".join(re.escape(" ".join(part.split())) for part in expected.split("…"))
    return re.search(pattern, line) is not None
