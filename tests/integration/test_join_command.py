"""`photon join` from a user's view: inference, following, kills, replicas, output files, the ledger."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from photon.config.disk import RealDisk
from photon.lab.demo.check import records
from photon.lab.demo.generator import Disorder
from photon.outputs import OutputPlace, Reader
from tests.integration.commands import alive, children, photon, until
from tests.integration.join_logs import Logs

WAIT_S = 60.0


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    """Joined to its end; further runs find nothing new."""
    logs = Logs(tmp_path_factory.mktemp("finished"))
    logs.finish()
    return logs


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):  # it ended before it was opened, or before it was read
        return ""


def child(parent: int, *words: str) -> int | None:
    """A process below ``parent`` whose command line has all the words."""
    return next((pid for pid in children(parent) if all(word in command_of(pid) for word in words)), None)


def caught_up(logs: Logs) -> None:
    until(lambda: logs.joined() == logs.joinable(), WAIT_S, "all that can be joined is joined")


def test_without_a_configuration_the_logs_say_it_themselves(logs: Logs) -> None:
    logs.write()
    first = logs.once("--max-rejected", "1000", config=False)
    assert first.code == 0, first.err
    logs.exact(first.json)
    kept = logs.output / ".photon" / "inferred.toml"
    assert "jsonl" in first.err
    assert "key = 'query_id'" in first.err
    assert "event id = 'click_id'" in first.err
    assert str(kept) in first.err
    assert 'id = "click_id"' in kept.read_text()
    assert all(line.startswith("photon: ") for line in first.err.splitlines())
    again = logs.once("--max-rejected", "1000", config=False)
    assert (again.code, again.json, again.err) == (0, first.json, "")
    # The kept configuration is like any other.
    checked = photon("doctor", "config", "--config", kept)
    assert checked.code == 0, checked.err
    assert logs.once("--max-rejected", "1000", "--config", kept, config=False).json == first.json


def test_standard_output_is_the_ledger_alone_and_photon_ledger_agrees(finished: Logs) -> None:
    logs = finished
    result = logs.once("--max-rejected", "1000")
    assert (result.code, result.err) == (0, "")
    assert result.out.count("\n") == 1
    logs.exact(result.json)
    shown = photon("status", "ledger", logs.output, "-o", "json")
    told = json.loads(shown.out)
    assert (shown.code, told["total"], told["balances"]) == (
        0,
        result.json | {"reread": 0, "wasted": 0, "retimed": 0, "ambiguous": 0, "unpaired": 0},
        True,
    )
    assert {name: sum(hour[name] for hour in told["hours"].values()) for name in result.json} == result.json
    table = photon("status", "ledger", logs.output)
    assert table.code == 0
    names, *_, totals = (line.split() for line in table.out.splitlines())
    assert names[2:] == list(result.json)
    assert [int(number.replace(",", "")) for number in totals[1:]] == list(result.json.values())
    plain = photon(*logs.arguments("--once", "--quiet", "--max-rejected", "1000"))
    assert plain.code == 0
    _, *shown_rows, last = plain.out.splitlines()
    assert last == f"{result.json['joined']:,} records: photon read {logs.output}"
    rows = {name: int(number.replace(",", "")) for name, number, *_ in map(str.split, shown_rows)}
    assert rows == {name: number for name, number in result.json.items() if number}


def test_what_a_run_makes_is_not_for_other_users(finished: Logs) -> None:
    """Regardless of the caller's umask; and the key is readable by its owner alone."""
    made = [finished.output, *finished.output.rglob("*")]
    assert len(made) > 10
    assert [path for path in made if path.lstat().st_mode & 0o027 and not path.is_symlink()] == []
    assert (finished.output / ".photon" / "key").stat().st_mode & 0o777 == 0o600


def test_more_rejected_in_a_run_than_allowed_is_exit_3(logs: Logs) -> None:
    rejected = logs.truth.malformed
    assert rejected > 1
    logs.write()
    result = logs.once("--max-rejected", str(rejected - 1))
    assert result.code == 3
    assert result.json["rejected"] == rejected
    assert result.err.splitlines() == [
        f"photon: {rejected} records rejected in this run, see {logs.output}/rejected "
        f"(more than --max-rejected {rejected - 1})"
    ]
    again = logs.once()
    assert (again.code, again.err, again.json) == (0, "", result.json)


def test_kept_pending_events_are_complete_with_the_next_run(logs: Logs) -> None:
    logs.write(0.5)
    queries = logs.primary / "queries.log"
    data = queries.read_bytes()
    queries.unlink()
    first = logs.once("--keep-pending", "--max-rejected", "1000").json
    assert first["pending"] > 0
    assert first["joined"] == first["unmatched"] == 0
    assert first["read"] == first["pending"] + first["rejected"] + first["duplicate"]
    queries.write_bytes(data)
    second = logs.once("--keep-pending", "--max-rejected", "1000").json
    assert second["joined"] == logs.joined() == logs.joinable()
    assert second["unmatched"] == 0
    logs.finish()


def test_following_until_interrupted_ends_with_the_ledger(tmp_path: Path) -> None:
    logs = Logs(tmp_path, disorder=Disorder(unmatched=0.1, duplicated=0.1, malformed=0.02, before_query=0.2))
    with logs.following() as following:
        for share in (0.3, 0.6, 1.0):
            logs.write(share)
            caught_up(logs)
        busy = logs.once()
        assert (busy.code, busy.out) == (1, "")
        assert busy.err.startswith(
            f"photon: {logs.output}: in use by another photon process; stop it, or choose another"
        )
        assert busy.err.count("\n") == 1
        result = following.interrupt()
    assert result.code == 3  # malformed lines
    assert result.json["joined"] == len(logs.truth.joined)
    assert result.json["pending"] == len(logs.truth.unmatched) + _waiting_duplicates(result.json, logs)
    assert result.json["rejected"] == logs.truth.malformed
    logs.finish()


def _waiting_duplicates(ledger: dict[str, int], logs: Logs) -> int:
    """Duplicates of a waiting event wait as well."""
    return logs.truth.duplicates - ledger["duplicate"]


def test_a_kill_of_the_event_store_is_survived(logs: Logs) -> None:
    with logs.following("--max-rejected", "1000") as following:
        logs.write(0.4)
        caught_up(logs)
        pid = child(following.process.pid, "serve", "eventstore")
        assert pid is not None
        os.kill(pid, 9)
        logs.write(0.8)
        caught_up(logs)
        assert child(following.process.pid, "serve", "eventstore") not in (None, pid)
        assert following.interrupt().code == 0
    logs.finish()


def test_a_kill_of_the_parent_leaves_no_process_and_no_double(logs: Logs) -> None:
    for share in (0.4, 0.8):
        with logs.following("--set", "output.roll_size=20000", "--set", "output.joined_at=false") as following:
            before = logs.joined()
            logs.write(share)
            until(lambda: logs.joined() > before, WAIT_S, "something is joined")  # noqa: B023
            below = children(following.process.pid)
            assert below
            following.kill()
            until(lambda: not any(map(alive, below)), WAIT_S, "no process is left")  # noqa: B023
    logs.finish("--set", "output.joined_at=false")
    assert not any("joined_at" in record or "token" not in record for record in records(logs.output / "joined"))
    assert not any("decided_at" in record for record in records(logs.output / "unmatched"))


def listed(logs: Logs) -> list[dict[str, Any]]:
    """Final files named by the slot's manifest."""
    manifest = logs.output / ".photon" / "slots" / "local-1" / "manifest.jsonl"
    return [orjson.loads(line) for line in manifest.read_bytes().splitlines()] if manifest.exists() else []


@pytest.mark.parametrize("form", ["none", "gzip"])
def test_output_files_roll_and_are_listed_once_cleared(logs: Logs, form: str) -> None:
    settings = ("--set", "output.roll_size=10000", "--set", f"output.compress={form}")
    end = ".jsonl.gz" if form == "gzip" else ".jsonl"
    with logs.following("--max-rejected", "1000", *settings) as following:
        for number, share in enumerate((0.4, 0.8), 1):
            logs.write(share)
            rolled = f"joined/local-1-{number:06}{end}"
            until(lambda: rolled in [each["file"] for each in listed(logs)], WAIT_S, "the rolled file is final")  # noqa: B023
        assert following.interrupt().code == 0
    logs.finish(*settings)
    final = listed(logs)
    assert len(final) >= 2
    for entry in final:
        assert entry["file"].endswith(end)
        whole = (logs.output / entry["file"]).read_bytes()
        data = gzip.decompress(whole) if form == "gzip" else whole
        assert (entry["bytes"], entry["uncompressed_bytes"]) == (len(whole), len(data))
        assert (entry["records"], entry["crc32"]) == (data.count(b"\n"), zlib.crc32(data))
        assert data.endswith(b"\n")
    packed = {str(path.relative_to(logs.output)) for path in logs.output.glob("*/*.jsonl.gz")}
    assert packed == ({entry["file"] for entry in final} if form == "gzip" else set())
    assert not any((logs.output / name).with_suffix("").exists() for name in packed)


def cat(logs: Logs) -> list[bytes]:
    """Whole lines of ``cat out/joined/*.jsonl``, file by file, as each file was when it was read."""
    done = subprocess.run("cat joined/*.jsonl", shell=True, cwd=logs.output, capture_output=True, check=False)
    lines = done.stdout.split(b"\n")
    return lines[:-1]


def published(logs: Logs) -> list[bytes]:
    """The lines below the published lengths, read by ``photon read``'s rules."""
    place = OutputPlace.of_join(logs.output)
    return [line for block in Reader(RealDisk(), place, ("joined",)).read() for line in block.data.splitlines()]


def test_cat_reads_all_joined_records_at_every_moment(logs: Logs) -> None:
    """While files are written, rolled and become final: never a line less than before, and no published line is
    missing."""
    roll = ("--max-rejected", "1000", "--set", "output.roll_size=3000")
    seen: list[bytes] = []
    looks = 0
    with logs.following(*roll) as following:
        for share in np.linspace(0.1, 1.0, 10):
            logs.write(float(share))
            until((logs.output / "joined").exists, WAIT_S, "there is output")
            before, deadline = len(published(logs)), time.monotonic() + WAIT_S
            while len(promised := published(logs)) <= before:  # so that each share rolls a file
                assert time.monotonic() < deadline
                now = cat(logs)
                assert now[: len(seen)] == seen
                assert now[: len(promised)] == promised
                seen, looks = now, looks + 1
        until(lambda: len(listed(logs)) > 5, WAIT_S, "files are final")
        assert following.interrupt().code == 0
    assert looks > 10
    logs.finish(*roll)
    now = cat(logs)
    assert now[: len(seen)] == seen
    ids = [orjson.loads(line)["event_id"] for line in now]
    assert sorted(ids) == sorted(logs.truth.joined)
