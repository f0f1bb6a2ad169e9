"""Each ``photon spark …`` command of the pages is run as written, for a past day of a small deployment.

Includes the nightly script of docs/verification.md; spark-submit's is in ``test_cluster``. The documents' day, master
and directory are replaced; a command added to a page is run without a change here.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from photon.cli.main import main
from photon.fleet.ledger import read_ledger
from photon.supervision.ports import free_ports
from tests.docs.fences import DOCUMENTS, ROOT, commands_of
from tests.integration.commands import interrupt, photon, running, until
from tests.spark.backfill_site import Site, in_thread, make_site, published
from tests.spark.cluster import HOST, ONE, bare_environment
from tests.spark.conftest import require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY, NEXT = "2025-10-09", "2025-10-10"  # days of the events of ``make_site``
WAIT_S = 120.0
RUN_S = 400.0
CLICKS = 60
NIGHTLY = "#!/bin/bash\n# photon-nightly"


def _blocks(info: str) -> Iterator[str]:
    for document in DOCUMENTS:
        yield from re.findall(rf"^```{info}\n(.*?)^```", document.read_text(), re.M | re.S)


def spark_commands() -> list[list[str]]:
    """All commands, except those inside scripts, and those of a bucket, which ``tests/objects`` runs."""
    found = [words for document in DOCUMENTS for _, words in commands_of(document.read_text()) if words[0] == "spark"]
    return [words for words in found if not any("$" in word or word.startswith("s3://") for word in words)]


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A running deployment that has joined all of its logs."""
    require_spark()
    directory = tmp_path_factory.mktemp("documents")
    site = make_site(directory / "site", CLICKS)
    file = site.file
    table = "[join.clicks.primary]"
    file.write_text(file.read_text().replace(table, f'[join.clicks]\nunmatched_after = "1s"\n{table}', 1))
    with running("up", file, log=directory / "up.log") as up:
        until(lambda: _settled(site.directory), WAIT_S, "all events have their verdict, and it is published")
        yield site
        assert interrupt(up, timeout=60.0) == 0


def _settled(directory: Path) -> bool:
    counts = read_ledger(directory / "state")
    if not counts["read"] or counts["read"] != _lines(directory) or counts["pending"]:
        return False
    told = json.loads((directory / "state/slots/east-1/durable.json").read_bytes())["files"]
    there = {f"{kind}/east-1-000001.jsonl" for kind in ("joined", "unmatched")}  # to readers a second later at most
    return told == {name: (directory / "output" / name).stat().st_size for name in there}


def _lines(directory: Path) -> int:
    logs = (directory / "clicks").iterdir()
    read = [gzip.decompress(data) if log.suffix == ".gz" else data for log in logs if (data := log.read_bytes())]
    return sum(data.count(b"\n") for data in read)


def as_here(text: str, site: Site, directory: Path) -> str:
    """The documents' names, replaced by the ones here."""
    for said, here in (
        ("/mnt/shared", str(directory)),
        ("reports/2026-11-20", f"reports/{DAY}"),
        ("2026-11-20", DAY), ("2026-11-21", NEXT), ("2026-11-01", "2025-10-01"),
        ("spark://host:7077", "local[2]"),
        ("photon.toml", str(site.file)),
    ):  # fmt: skip
        text = text.replace(said, here)
    return text


def run(arguments: list[str], cwd: Path, path: str = "", more: Mapping[str, str] = MappingProxyType({})) -> str:
    bin_path = f"{path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        arguments, cwd=cwd, env={**os.environ, "PATH": bin_path, **more}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=RUN_S,
    )  # fmt: skip
    print(f"$ {' '.join(arguments)}\n{done.stdout}exit code {done.returncode}")
    assert done.returncode == 0, done.stdout
    return done.stdout


def invoked(words: list[str], site: Site, directory: Path) -> str:
    """Runs in the session of the tests: the nightly script has its own."""
    done = CliRunner().invoke(main, [as_here(word, site, directory) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def _options(words: list[str]) -> frozenset[str]:
    """Options that matter here: the session of the tests is there before its master and its settings are named."""
    return frozenset(word for word in words if word.startswith("--")) - {"--master", "--spark"}


# One command for each choice of options.
VERIFY = [*{_options(words): words for words in spark_commands() if words[1] == "verify"}.values()]
BACKFILL = [words for words in spark_commands() if words[1] == "backfill"]
JOIN = [words for words in spark_commands() if words[1] == "join"]


def test_each_is_run_here() -> None:
    assert {words[1] for words in spark_commands()} == {"verify", "backfill", "join"}
    assert len(VERIFY) > 1


@pytest.mark.parametrize("words", VERIFY, ids=" ".join)
def test_verify(
    joined: Site, tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*words, *(() if "--to" in words else ("--to", NEXT))]  # the events are old
    assert "every event exactly once" in invoked(words, joined, tmp_path).lower()
    assert list(tmp_path.rglob("report.html"))


def test_from_the_installation_to_a_chart(tmp_path: Path) -> None:
    """The steps of docs/spark.md; ports differ here, and the cluster is stopped."""
    require_spark()
    page = (ROOT / "docs" / "spark.md").read_text().partition("## From installation to a chart\n")[2]
    output, cluster, chart = re.findall(r"^```sh\n(.*?)^```", page.partition("\n## ")[0], re.M | re.S)
    port, web, *others = free_ports(4)
    cluster = cluster.replace(" --port 7077", f" --port {port} --webui-port {web}")
    for worker, each in zip("12", others, strict=True):
        cluster = f"port_of_{worker}={each}\n{cluster}"
    cluster = cluster.replace("--cores 1", '--webui-port "$(eval echo \\$port_of_$worker)" --cores 1')
    run(["bash", "-euc", output], tmp_path)
    environment = bare_environment() | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    script = cluster.replace(":7077", f":{port}") + "wait\n"
    started = subprocess.Popen(["bash", "-euc", script], cwd=tmp_path, env=environment, start_new_session=True)
    try:
        more = {"SPARK_LOCAL_IP": HOST, "SPARK_SUBMIT_OPTS": f"{environment['SPARK_SUBMIT_OPTS']} {ONE}"}
        said = run(["bash", "-euc", chart.replace(":7077", f":{port}")], tmp_path, more=more)
    finally:
        os.killpg(started.pid, signal.SIGTERM)
        started.wait(60)
    assert "|2026-03-01 09:00:00|60    |3.0  |##############                          |" in said
    assert f"|2026-03-01 09:09:00|60    |8.4  |{'#' * 40}|" in said


def test_the_nightly_script(joined: Site, tmp_path: Path) -> None:
    """Its "day before" is the one of the events, by ``date`` and --to."""
    (script,) = (block for block in _blocks("bash") if block.startswith(NIGHTLY))
    (tmp_path / "photon-nightly").write_text(script)
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "date").write_text(f"#!/bin/sh\necho {DAY}\n")
    (fake / "date").chmod(0o755)
    reports = tmp_path / "reports"
    reports.mkdir()
    run(["bash", str(tmp_path / "photon-nightly"), str(joined.file), str(reports), "--to", NEXT], tmp_path, str(fake))
    assert (reports / DAY / "report.html").exists()


@pytest.mark.parametrize("words", BACKFILL, ids=" ".join)
async def test_backfill(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    site = make_site(tmp_path / "site", CLICKS)
    words = [NEXT if before == "--to" else word for before, word in zip(["", *words], words, strict=False)]
    monkeypatch.chdir(tmp_path)
    async with site.running():
        await in_thread(invoked, words, site, tmp_path)
    assert published(tmp_path / "backfill-november")


@pytest.mark.parametrize("words", JOIN, ids=" ".join)
async def test_join(tmp_path: Path, words: list[str]) -> None:
    """They follow the logs; here they end with them."""
    require_spark()
    site = make_site(tmp_path, CLICKS)
    async with site.running(["registry", "eventstore"]):
        done = await in_thread(photon, *(as_here(word, site, tmp_path) for word in words), "--once")
    assert done.code == 0, done.err
    output = tmp_path / "output" / "joined" / "east-spark-000001.jsonl"
    assert len(output.read_bytes().splitlines()) == len(site.pairs) + 1  # and the old click
