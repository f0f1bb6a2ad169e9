"""Prometheus text of several processes made into one, and its samples taken apart. Pure.

The text comes from our own processes, so every line is one of prometheus_client's: ``NAME{LABELS} VALUE``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}


class Sample(NamedTuple):
    """One line."""

    name: str
    labels: Mapping[str, str]
    value: float


def samples(text: str) -> Iterator[Sample]:
    """Of one process. Lines that are none are left out."""
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is not None:
            labels = {name: _plain(value) for name, value in _LABEL.findall(found[2] or "")}
            yield Sample(found[1], labels, float(found[3]))


def merged(texts: Iterable[tuple[Mapping[str, str], str]]) -> str:
    """(labels, text) of each process -> one text; lines of one metric stand together, as the format demands."""
    heads: dict[str, list[str]] = {}
    lines: dict[str, list[str]] = {}
    for labels, text in texts:
        more = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
        family = ""
        for line in text.splitlines():
            if line.startswith("#"):
                word, family = line.split(" ", 3)[1:3]
                head = heads.setdefault(family, [])
                if len(head) < 2 and not any(known.startswith(f"# {word} ") for known in head):
                    head.append(line)
                continue
            found = _LINE.match(line)
            if found is not None:
                inner = ",".join(filter(None, (found[2], more)))
                lines.setdefault(family, []).append(f"{found[1]}{{{inner}}} {found[3]}")
    return "".join(f"{line}\n" for family, head in heads.items() for line in (*head, *lines.get(family, [])))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _plain(value: str) -> str:
    return re.sub(r'\\[\\n"]', lambda found: _ESCAPED[found[0]], value) if "\\" in value else value
