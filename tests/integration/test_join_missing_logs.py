"""A primary log is deleted before its clicks come: they wait, and get a verdict when the log is given up."""

from __future__ import annotations

import time
from pathlib import Path

import orjson

from photon.lab.demo.check import records
from tests.integration.commands import interrupt, photon, running, until

CONFIG = """
[join.clicks]
unmatched_after = "1s"
[join.clicks.primary]
format = "jsonl"
key = "q"
[join.clicks.foreign]
format = "jsonl"
key = "q"
id = "c"
time = { field = "t", unit = "s" }
"""


def lines(directory: Path, name: str, *values: dict[str, object]) -> None:
    directory.mkdir(exist_ok=True)
    with (directory / name).open("ab") as file:
        file.write(b"".join(orjson.dumps(value) + b"\n" for value in values))


def test_clicks_of_a_deleted_log_wait_by_name_and_are_unmatched_once_it_is_given_up(tmp_path: Path) -> None:
    config, primary, foreign, out = (
        tmp_path / "join.toml",
        tmp_path / "queries",
        tmp_path / "clicks",
        tmp_path / "out",
    )
    config.write_text(CONFIG)
    arguments: list[str | Path] = [
        "join",
        "--primary",
        primary,
        "--foreign",
        foreign,
        "--output",
        out,
        "--config",
        config,
    ]
    at = 1_700_000_000
    lines(primary, "old.log", *({"q": f"old{n}", "t": at} for n in range(3)))
    lines(primary, "new.log", *({"q": f"new{n}", "t": at} for n in range(3)))
    lines(foreign, "clicks.log", {"q": "old0", "c": "c0", "t": at})
    first = photon(*arguments, "--once", "-o", "json")
    assert (first.code, first.json["joined"]) == (0, 1), first.err
    (primary / "old.log").unlink()
    lines(foreign, "clicks.log", {"q": "old1", "c": "c1", "t": at}, {"q": "new1", "c": "c2", "t": at})

    assert "1 key waits for 1 primary log that cannot be read" in waiting_join(tmp_path, arguments)
    assert len(list(records(out / "joined"))) == 2
    assert list(records(out / "unmatched")) == []

    last = photon(*arguments, "--once", "-o", "json", "--set", "join.clicks.missing_logs=forget")
    assert last.code == 0, last.err
    assert (last.json["joined"], last.json["unmatched"], last.json["pending"]) == (2, 1, 0)
    log = (out / ".photon" / "logs" / "eventstore.log").read_text()
    assert "old.log" in log
    assert "count as absent" in log


def waiting_join(base: Path, arguments: list[str | Path]) -> str:
    """Follows the logs until its progress says that something is missing; returns its output."""
    said = base / "said"
    with running(*arguments, log=said) as process:
        until(lambda: "that cannot be read" in said.read_text(), 60.0, "the progress names what is missing")
        assert process.poll() is None
        interrupt(process)
    return next(line for line in said.read_text().splitlines() if "that cannot be read" in line)


def test_a_job_that_overwrites_its_directories_is_joined_as_before(tmp_path: Path) -> None:
    """The same rows under new file names, and one more: the old files are not waited for. A row in none of the new
    files is named at once."""
    config, primary, foreign, out = (tmp_path / name for name in ("join.toml", "queries", "clicks", "out"))
    config.write_text(CONFIG.replace('unmatched_after = "1s"\n', ""))
    arguments: list[str | Path] = [
        *("join", "--once", "--primary", primary, "--foreign", foreign, "--output", out),
        *("--config", config, "-o", "json"),
    ]
    at = 1_700_000_000

    def write(name: str, *rows: int) -> None:
        for old in (*primary.glob("*"), *foreign.glob("*")):
            old.unlink()
        lines(primary, name, *({"q": f"q{n}", "t": at + n} for n in rows))
        lines(foreign, name, *({"q": f"q{n}", "c": f"c{n}", "t": at + n} for n in rows))

    write("part-0000-aaa.json", *range(20))
    first = photon(*arguments)
    assert (first.code, first.json["joined"]) == (0, 20), first.err
    write("part-0000-bbb.json", *reversed(range(21)))  # other bytes: it is another log
    for _ in range(2):
        again = photon(*arguments)
        assert again.code == 0, again.err
        assert (again.json["joined"], again.json["duplicate"], again.json["pending"]) == (21, 20, 0)
    assert len(list(records(out / "joined"))) == 21
    said = (out / ".photon" / "logs" / "eventstore.log").read_text()
    assert "part-0000-aaa.json" in said
    assert "are joined from other logs if possible" in said

    # And rows that no click has named before are gone.
    lines(primary, "part-0000-lost.json", {"q": "lost", "t": at})
    assert photon(*arguments).code == 0
    (primary / "part-0000-lost.json").unlink()
    lines(foreign, "more.json", {"q": "lost", "c": "c-lost", "t": at})
    for _ in range(2):
        began = time.monotonic()
        lost = photon(*arguments)
        assert time.monotonic() - began < 30.0
        assert (lost.code, lost.json["pending"]) == (3, 1), lost.err
        assert "primary log part-0000-lost.json: its file is gone; 1 key waits for it; restore its file" in lost.err
    forgotten = photon(*arguments, "--set", "join.clicks.missing_logs=forget")
    assert (forgotten.code, forgotten.json["unmatched"]) == (0, 1), forgotten.err
    assert photon(*arguments).code == 0
