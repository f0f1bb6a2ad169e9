"""Runs each ``photon …`` command of the README and the pages, in a deployment of real processes with traffic.

A command added to a page is run too, without any change here. A command's preconditions are in ``BEFORE``; documents
whose commands other tests run, in ``ELSEWHERE``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.docs.fences import DOCUMENTS, ROOT, commands_of
from tests.integration.commands import drawn_seed, interrupt, photon, running, until
from tests.integration.documents.places import Documents
from tests.integration.operations.site import WAIT_S

ELSEWHERE = {
    "README.md": "tests/docs/test_first_screen.py",
    "docs/adapters.md": "tests/docs/test_adapters.py",
    "docs/ids.md": "tests/integration/test_first_contact.py",
    "docs/tutorial.md": "tests/integration/test_tutorial.py",
    "docs/chains.md": "tests/integration/test_tutorial.py",
    "docs/tables.md": "tests/integration/test_tutorial.py",
    "docs/computations.md": "tests/integration/test_tutorial.py",
    "docs/inference.md": "tests/integration/test_join_inputs.py",
    "docs/write-an-adapter.md": "tests/docs/test_write_an_adapter.py",
    "docs/kafka.md": "tests/kafka/test_logs.py",
    "docs/kubernetes.md": "tests/kubernetes/test_chart.py",
    "docs/opentelemetry.md": "tests/otlp/test_deployment.py",
    "docs/objects.md": "tests/objects/test_written.py",
    "docs/watermarks.md": "tests/integration/test_watermark.py",
    "docs/spark.md": "tests/spark/test_documents.py",
    "docs/operations/": "tests/integration/operations/test_runbooks.py",
}
# Run by tests/spark/test_documents.py wherever they appear.
SPARK = ("spark", "verify"), ("spark", "recover"), ("spark", "backfill")
CHAOS_RUN = ("chaos", "run")
ATTENTION = 3
# Documents that destroy something come last.
ORDER = (
    "docs/index.md", "docs/watching.md", "docs/deployment.md", "docs/verification.md",
    "docs/commands.md", "docs/reading.md", "docs/ledger.md", "docs/embedding.md",
    "docs/dispatcher.md", "docs/eventstore.md", "docs/security.md", "docs/resharding.md", "docs/datacentres.md",
    "docs/chaos.md",
)  # fmt: skip
TIMEOUT_S = 900


BEFORE: dict[tuple[str, ...], Callable[[Documents], None]] = {
    ("eventstore", "forget", "--dry-run"): Documents.lose_primary_log,
    ("slot", "retire"): Documents.lose_slot,
    ("serve", "dispatcher"): Documents.stop_dispatcher,
    ("serve", "datacentre"): Documents.stop_parts,
}
CODES: dict[tuple[str, ...], Sequence[int]] = {
    ("doctor",): (0, ATTENTION),
}


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def commands(name: str) -> list[list[str]]:
    """The commands of a document that are run here."""
    found = [words for _, words in commands_of((ROOT / name).read_text())]
    return [words for words in found if tuple(words[:2]) not in (*SPARK, CHAOS_RUN)]


def test_every_document_is_run_somewhere() -> None:
    with_commands = {name_of(each) for each in DOCUMENTS if list(commands_of(each.read_text()))}
    here = set(ORDER)
    assert {name for name in with_commands - here if not name.startswith(tuple(ELSEWHERE))} == set()
    assert here <= with_commands
    assert all((ROOT / test).exists() for test in ELSEWHERE.values())


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Documents]:
    """``photon up FILE`` of docs/datacentres.md starts the deployment."""
    directory = tmp_path_factory.mktemp("documents")
    documents = Documents(directory, drawn_seed())
    with running("up", documents.site.file, log=directory / "up.log") as up:
        try:
            documents.prepare()
            yield documents
            if up.poll() is None:
                assert interrupt(up, timeout=60.0) == 0
        finally:
            documents.close()


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("name", ORDER)
def test_the_commands_do_what_they_say(documents: Documents, name: str) -> None:
    for words in commands(name):
        if words[0] == "up":  # it runs
            until(documents.up, WAIT_S, "all processes are up")
            continue
        for key, prepare in BEFORE.items():
            if _is(words, key):
                prepare(documents)
        codes = next((codes for key, codes in CODES.items() if _is(words, key)), (0,))
        certified = words[0] == "certs" or words[:2] == ["status", "certificates"]
        documents.run(words, codes=codes, cwd=documents.certified if certified else None)
    documents.go_on()


def _is(words: list[str], key: tuple[str, ...]) -> bool:
    """``key``: the command's beginning, and options that it has."""
    plain = [each for each in key if not each.startswith("-")]
    return words[: len(plain)] == plain and {each for each in key if each.startswith("-")} <= set(words)


@pytest.mark.full
@pytest.mark.timeout(TIMEOUT_S)
def test_the_chaos_runs(tmp_path: Path) -> None:
    """As written, but shorter: make chaos runs each scenario for its own time."""
    for number, words in enumerate(words for _, words in commands_of((ROOT / "docs/chaos.md").read_text())):
        if tuple(words[:2]) == CHAOS_RUN:
            before = ["", *words[:-1]]
            shorter = ["0.4" if each == "--minutes" else word for each, word in zip(before, words, strict=True)]
            shorter = [word.replace("/tmp/chaos", str(tmp_path / "named")) for word in shorter]
            if "--directory" not in shorter:
                shorter += ["--directory", str(tmp_path / str(number))]
            done = photon(*shorter, timeout=TIMEOUT_S)
            assert done.code == 0, done.err + done.out
