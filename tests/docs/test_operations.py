"""The runbooks have all their parts, their commands exist, and what they direct a test to do is well formed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_schedules import check, commands_in
from tests.integration.operations.events import EVENTS
from tests.integration.operations.runbook import DIRECTORY, Happens, Malformed, Run, missing, steps
from tests.integration.operations.site import TOGETHER, WITH_COPIES, WITHOUT_COPIES

REFERENCES = ("README.md", "registry.md", "change-a-join.md")
RUNBOOKS = sorted(path for path in DIRECTORY.glob("*.md") if path.name not in REFERENCES)
PARTS = ("**When.**", "**Before.**", "It has worked when", "If it has not", "Going back", "What readers notice")


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda path: path.stem)
def test_each_runbook_has_all_its_parts(path: Path) -> None:
    text = path.read_text()
    assert [part for part in PARTS if part not in text] == []
    done = steps(path.name, text)
    assert sum(isinstance(step, Run) for step in done) >= 3
    assert [step.what for step in done if isinstance(step, Happens) and step.what not in EVENTS] == []
    kinds = ("", TOGETHER, WITH_COPIES, WITHOUT_COPIES)
    assert [step.only for step in done if isinstance(step, Run) and step.only not in kinds] == []


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.md")), ids=lambda path: path.stem)
def test_each_command_exists(path: Path) -> None:
    text = path.read_text()
    blocks = re.findall(r"^```(?:sh|sh show)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    found = [words for block in blocks for words in commands_in(_plain(block))]
    if path.name not in REFERENCES:
        assert found
    for words in found:
        check(words)


def _plain(block: str) -> str:
    """Without what the shell does between the commands."""
    return re.sub(r" && ", "\n", re.sub(r"\$\(.*?\)|\$\w+", "x", block))


def test_the_index_names_each_runbook() -> None:
    index = (DIRECTORY / "README.md").read_text()
    assert [path.name for path in RUNBOOKS if f"]({path.name})" not in index] == []


TEXT = """# A runbook
```sh
one=1
```
<!-- test: it rains -->
<!-- test: exit 3 -->
```sh
echo $one
```
```text
a  … c
```
```sh show
never
```
<!-- test: only with copies -->
```sh
ls
```
"""


def test_a_runbook_is_read_as_steps() -> None:
    assert steps("r.md", TEXT) == [
        Run(2, "one=1\n"),
        Happens(5, "it rains"),
        Run(7, "echo $one\n", 3, "a  … c\n"),
        Run(17, "ls\n", only="with copies"),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("```bash\ntrue\n```\n", "r.md:1: a block of 'bash'"),
        ("```text\nsaid\n```\n", "r.md:1: says what no block before it has said"),
        ("<!-- test: it rains -->\n```text\nsaid\n```\n", "r.md:2: says what"),
        ("<!-- test: exit 1 -->\n", "r.md: an exit code or a condition that no block has"),
        ("<!-- test: only with copies -->\n", "r.md: an exit code or a condition that no block has"),
        ("```sh\ntrue\n", "r.md:1: a block that does not end"),
        ("it <!-- test: rains -->\n", "a direction that is not a line of its own"),
    ],
)
def test_what_cannot_be_carried_out_is_said(text: str, why: str) -> None:
    with pytest.raises(Malformed, match=re.escape(why)):
        steps("r.md", text)


def test_what_is_expected_of_an_output() -> None:
    said = "slot  east-1   is up\nnothing was done\n"
    assert missing("slot east-1 is up\n… was done\n\n", said) == []
    assert missing("slot … down\nnothing", said) == ["slot … down"]
