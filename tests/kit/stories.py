"""Stories: a text file of steps for a pure core, and its answers. The tests of a core read like its transcript.

A story begins with ``== its title``; ``#`` lines say why. Any other line has steps, ``command words key=value``, with
``;`` between them. Each is a method of the story's machine, called with the words. Their answers stand behind ``=>``
if they are short, else below, indented. Without ``=>``, the machine does nothing that can be seen.

``make golden`` writes what machines answer now: review its diff.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any, NamedTuple

WIDTH = 118
INDENT = "  "


class Story(NamedTuple):
    file: Path
    text: str

    def __str__(self) -> str:
        return self.text.partition("\n")[0].removeprefix("== ").replace(" ", "-")

    def told_by(self, machine: Any) -> str:
        """Returns the story with the answers of ``machine``."""
        lines = []
        for line in self.text.splitlines():
            if line.startswith(INDENT):
                continue
            lines.append(line)
            if line and not line.startswith(("==", "#")):
                lines[-1:] = _shown(line.partition(" =>")[0], machine)
        return "\n".join(lines) + "\n"


def _shown(steps: str, machine: Any) -> list[str]:
    answers = [answer for step in steps.split(";") for answer in _answers(step, machine)]
    if not answers:
        return [steps]
    lines = textwrap.wrap("; ".join(answers), WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)
    together = f"{steps} => {lines[0].strip()}"
    return [together] if len(lines) == 1 and len(together) <= WIDTH else [f"{steps} =>", *lines]


def _answers(step: str, machine: Any) -> list[str]:
    command, *words = step.split()
    options = dict(word.split("=", 1) for word in words if "=" in word)
    try:
        answer = getattr(machine, command)(*[word for word in words if "=" not in word], **options)
    except Exception as error:
        error.add_note(f"at the step: {step.strip()}")
        raise
    return [each for each in ([answer] if isinstance(answer, str) else answer or ()) if each]


def stories(test: str, name: str) -> list[Story]:
    """Returns the stories in ``name``, a file next to ``test``."""
    file = Path(test).parent / name
    return [Story(file, f"== {text.strip()}\n") for text in file.read_text().split("\n== ")[1:]]
