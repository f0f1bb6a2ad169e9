"""photon spark recover with real processes: a file deleted by hand, a log skipped by mistake, late primaries."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from photon.config.loader import load
from photon.config.settings import Settings
from photon.fleet.ledger import balances, read_ledger
from photon.idregistry.api import Digester
from photon.lab.demo.check import records
from photon.spark.classes import Class
from photon.spark.recover.planning import ReportedProblem
from photon.spark.verify.verdict import fingerprint
from photon.supervision.deployment import Deployment
from photon.supervision.supervisor import Supervisor
from tests.integration.commands import Result, photon, soon
from tests.integration.supervised import supervised
from tests.integration.test_skip import T, configuration, joined
from tests.unit.spark.recover.rows import write_report

JOINED, UNMATCHED, SKIPPED = range(100), range(100, 106), range(200, 220)
DISPATCHERS = ("dispatcher east", "dispatcher west")
ATTENTION, USAGE = 3, 2


def site(directory: Path) -> Path:
    """Two datacentres that roll their files soon and do not wait for primaries."""
    file = configuration(directory)
    early = (
        '[output]\nroll_age = "1s"\ncompress = "gzip"\n[join.clicks]\nunmatched_after = "1s"\n[join.clicks.primary]'
    )
    file.write_text(file.read_text().replace("[join.clicks.primary]", early))
    return file


def write(directory: Path, what: str, numbers: Iterable[int]) -> None:
    lines = {
        "queries/q.log": '{{"query_id":"q{n}"}}\n',
        "clicks/c.log": '{{"click_id":"c{n}","query_id":"q{n}","time_us":{time}}}\n',
    }[what]
    for name in ("east", "west"):
        with (directory / name / what).open("a") as log:
            log.writelines(lines.format(n=n, time=(T + n) * 10**6) for n in numbers)


class Site:
    """The deployment's files."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.file = directory, site(directory)
        self.settings = load(self.file, environment={})
        self.states = [directory / name / "state" for name in ("east", "west")]
        self._digester = Digester((directory / "key").read_bytes(), "clicks")

    def all_done(self, number: int) -> bool:
        ledgers = [read_ledger(state) for state in self.states]
        return all(each["read"] == number and not each["pending"] for each in ledgers)

    def finals(self, kind: str) -> list[Path]:
        """Final files of both datacentres: all ids in them are cleared."""
        return [file for name in ("east", "west") for file in (self.directory / name / "output" / kind).glob("*.gz")]

    def lines(self, kind: str) -> list[dict[str, Any]]:
        outputs = [self.directory / name / "output" / kind for name in ("east", "west")]
        return [record for output in outputs for record in records(output)]

    def finding(
        self, kind: Class, number: int, state: str | None, token: str | None, **places: Any
    ) -> ReportedProblem:
        name = b"c%d" % number
        number_of = None if token is None else int(token, 16)
        return ReportedProblem(
            kind, self._digester.digest(name), name, (T + number) * 10**9, number_of, state, 0, "east", "c.log",
            places.get("file"), places.get("offset"), places.get("slot"), number_of, True,
        )  # fmt: skip

    async def recover(self, *more: str, report: str = "report", file: Path | None = None) -> Result:
        place = str(self.directory / report)
        report_of = ("--report", place, "--config", str(file or self.file), "-o", "json")
        return await asyncio.to_thread(photon, "spark", "recover", *report_of, *more)


async def test_what_was_lost_comes_back_once(tmp_path: Path) -> None:
    here = Site(tmp_path)
    write(tmp_path, "queries/q.log", JOINED)
    write(tmp_path, "clicks/c.log", [*JOINED, *UNMATCHED])
    deployment = Deployment(here.file, here.settings, tmp_path / "run")
    async with supervised(deployment) as supervisor:
        await supervisor.start(deployment.services())
        first = len(JOINED) + len(UNMATCHED)
        await soon(lambda: here.all_done(first), 60, "all is read")
        await soon(lambda: _finals_hold(here), 60, "all files are final")
        await _skipped_by_mistake(here, supervisor)
        write(tmp_path, "queries/q.log", UNMATCHED)  # they turn up after all
        # Where other files stay: an empty output counts as a disk that is not mounted
        output = here.finals("unmatched")[0].parents[1]
        [deleted, *_] = (output / "joined").glob("*.gz")
        lost = [json.loads(line) for line in gzip.decompress(deleted.read_bytes()).splitlines()]
        deleted.unlink()
        _report(here, lost)

        before = sorted(joined(tmp_path))
        shown = await here.recover("--dry-run")
        assert (shown.code, sorted(joined(tmp_path))) == (ATTENTION, before)
        counts: Any = shown.json["classes"]
        assert counts["lost-cleared"] == {"reopen": len(lost)}
        assert counts["primary-exists"] == {"not-asked": len(UNMATCHED)}
        assert shown.json["slots"] == {"east-1": 1}

        done = await here.recover("--yes")
        counts = done.json["classes"]
        assert done.code == ATTENTION
        assert counts["lost-cleared"] == {"reopened": len(lost)}
        assert counts["lost-unregistered"] == {"replay": len(SKIPPED)}
        assert counts["lost-owned"] == {"slot-down": 1}
        assert done.json["attention"] == {"slot-down": 1}
        whole = {f"c{n}" for n in (*JOINED, *SKIPPED)}
        await soon(lambda: len(joined(tmp_path)) >= len(whole), 60, "they are joined")
        assert Counter(joined(tmp_path)) == dict.fromkeys(whole, 1)
        assert (await here.recover("--yes")).json == done.json

        again = await here.recover("--yes", "--also-unmatched")
        counts = again.json["classes"]
        assert counts["primary-exists"] == {"reopened": len(UNMATCHED)}
        whole |= {f"c{n}" for n in UNMATCHED}
        await soon(lambda: len(joined(tmp_path)) >= len(whole), 60, "unmatched ones are joined too")
        assert Counter(joined(tmp_path)) == dict.fromkeys(whole, 1)
        assert Counter(r["event_id"] for r in here.lines("unmatched")) == {f"c{n}": 1 for n in UNMATCHED}
        await soon(lambda: not any(read_ledger(state)["pending"] for state in here.states), 60, "all is counted")
        assert all(balances(read_ledger(state)) for state in here.states)
    here.file.write_text(here.file.read_text().replace('"east/clicks"', '"east/other"'))
    refused = await here.recover("--dry-run")
    assert (refused.code, refused.out) == (USAGE, "")
    assert "the deployment has changed since this report" in refused.err


async def test_what_was_not_looked_at_is_refused(tmp_path: Path) -> None:
    """A datacentre that is no longer in the file, an output that is not mounted, a file that no manifest names."""
    here = Site(tmp_path)
    write(tmp_path, "queries/q.log", JOINED)
    write(tmp_path, "clicks/c.log", [*JOINED, *UNMATCHED])
    deployment = Deployment(here.file, here.settings, tmp_path / "run")
    async with supervised(deployment) as supervisor:
        await supervisor.start(deployment.services())
        await soon(lambda: here.all_done(len(JOINED) + len(UNMATCHED)), 60, "all is read")
        await soon(lambda: _finals_hold(here), 60, "all files are final")
        before = sorted(joined(tmp_path))
        lost = [
            (file, here.finding(Class.LOST_CLEARED, int(r["event_id"][1:]), "cleared", r["token"]))
            for file, _, r in _places(here, "joined")
        ]
        west = [replace(each, datacentre="west", slot="west-1") for file, each in lost if "west-1" in file]
        east = [replace(each, slot="east-1") for file, each in lost if "east-1" in file]
        name, found = ("west", west) if west else ("east", east)
        other = "east" if name == "west" else "west"

        text = here.file.read_text()
        dropped = tmp_path / "dropped.toml"
        dropped.write_text(_without(text, name))
        _written_report(here, "dropped", found, load(dropped, environment={}))
        for words, applied in (("--dry-run", False), ("--yes", True)):
            done = await here.recover(words, report="dropped", file=dropped)
            counts: Any = done.json["classes"]
            assert (done.code, done.json["applied"], counts) == (
                ATTENTION, applied, {"lost-cleared": {"not-looked-at": len(found)}},
            ), done.err  # fmt: skip
            refused: Any = done.json["not_looked_at"]
            assert [(each["datacentre"], each["slots"]) for each in refused] == [(name, {f"{name}-1": len(found)})]
            assert refused[0]["gone"] == "photon slot retire"

        output, elsewhere = tmp_path / name / "output", tmp_path / other / "output" / "joined"
        _written_report(here, "mount", found, here.settings)
        output.rename(tmp_path / "unmounted")
        output.mkdir()
        done = await here.recover("--yes", report="mount")
        counts = done.json["classes"]
        assert (done.code, counts) == (ATTENTION, {"lost-cleared": {"not-looked-at": len(found)}})
        told: Any = done.json["not_looked_at"]
        assert (told[0]["do"], str(output) in told[0]["seen"]) == ("mount it", True)

        # The operator confirms, but a copy of one file is where no manifest names it.
        kept = next((tmp_path / "unmounted" / "joined").glob("*.gz"))
        held = gzip.decompress(kept.read_bytes()).count(b"\n")
        copy = elsewhere / "saved by hand.jsonl.gz"
        copy.write_bytes(kept.read_bytes())
        done = await here.recover("--dry-run", "--gone", f"{name}-1", report="mount")
        counts = done.json["classes"]
        written: Any = done.json["written"]
        assert counts["lost-cleared"]["written"] == held
        assert counts["lost-cleared"].get("reopen", 0) == len(found) - held
        assert [(each["file"], each["events"]) for each in written] == [(str(copy), held)]
        copy.unlink()
        output.rmdir()
        (tmp_path / "unmounted").rename(output)

        done = await here.recover("--yes", report="mount")
        counts = done.json["classes"]
        assert (done.code, counts) == (ATTENTION, {"lost-cleared": {"written": len(found)}})
        assert sorted(joined(tmp_path)) == before


def _without(text: str, datacentre: str) -> str:
    """The deployment file without the sections of a datacentre."""
    sections = text.split("\n[")
    return "\n[".join(each for each in sections if not each.startswith(f"datacentre.{datacentre}"))


def _written_report(here: Site, name: str, findings: list[ReportedProblem], settings: Settings) -> None:
    deployment = fingerprint(settings, (here.directory / "key").read_bytes())
    write_report(here.directory / name, findings, deployment=deployment)


def _finals_hold(here: Site) -> bool:
    """All written events are in final files: their ids are cleared."""
    held = Counter[str]()
    for kind in ("joined", "unmatched"):
        for file in here.finals(kind):
            held[kind] += gzip.decompress(file.read_bytes()).count(b"\n")
    return held == {"joined": len(JOINED), "unmatched": len(UNMATCHED)}


async def _skipped_by_mistake(here: Site, supervisor: Supervisor) -> None:
    """Both datacentres skip the same part of their logs: nobody registers it."""
    for name in DISPATCHERS:
        supervisor.kill(name, hold=True)
    await supervisor.gone(DISPATCHERS)
    write(here.directory, "queries/q.log", SKIPPED)
    write(here.directory, "clicks/c.log", SKIPPED)
    for own, other in (("east", "west"), ("west", "east")):
        where = ("--config", str(here.file), "--datacentre", own, "--reader", other)
        done = await asyncio.to_thread(photon, "dispatcher", "skip", *where, "--to", "now", "--yes")
        assert done.code == 0, done.err
    for name in DISPATCHERS:
        supervisor.release(name)


def _places(here: Site, kind: str) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Name and offset of each record in the final files, as reported by a verification."""
    for file in here.finals(kind):
        offset = 0
        for line in gzip.decompress(file.read_bytes()).splitlines(keepends=True):
            yield f"{kind}/{file.name.removesuffix('.gz')}", offset, json.loads(line)
            offset += len(line)


def _report(here: Site, lost: list[dict[str, Any]]) -> None:
    """A verification's findings."""
    findings = [here.finding(Class.LOST_CLEARED, int(r["event_id"][1:]), "cleared", r["token"]) for r in lost]
    findings += [here.finding(Class.LOST_UNREGISTERED, number, None, None) for number in SKIPPED]
    findings += [
        here.finding(Class.PRIMARY_EXISTS, int(r["event_id"][1:]), "cleared", r["token"], file=file, offset=offset)
        for file, offset, r in _places(here, "unmatched")
    ]
    findings.append(here.finding(Class.LOST_OWNED, 999, "owned", f"{1 << 40:016x}", slot="east-1"))
    deployment = fingerprint(here.settings, (here.directory / "key").read_bytes())
    write_report(here.directory / "report", findings, deployment=deployment)
