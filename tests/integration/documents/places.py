"""Maps a document's examples to the deployment at hand: files, addresses, events, days."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import PIPE, STDOUT, TimeoutExpired

from photon.lab.demo.feed import Copy, Logs
from photon.lab.demo.generator import Disorder, Generator
from photon.supervision.control import NobodyListens, Request
from photon.supervision.ports import free_ports
from tests.docs.fences import ROOT
from tests.integration.commands import photon, until
from tests.integration.forked import Process, begin
from tests.integration.operations.site import EXAMPLE, WAIT_S, WITH_WAN, Site, on_free_ports

ENDLESS = {"--follow", "--watch", "--web", "serve"}  # a command with one of these words runs until it is interrupted
SILENT_S = 6.0  # a command that is silent for this time is running all the same
MOMENT_S = 0.4
COMMAND_S = 300.0
GONE_LOG = "queries.log.7"  # a primary log that the documents describe as lost


def write_logs(directory: Path) -> Generator:
    """Writes ``queries/`` and ``clicks/`` as a beginner has them."""
    generator = Generator(7, clicks=200, seconds=20, queries_per_click=2, disorder=Disorder(unmatched=0.05))
    for side in ("queries", "clicks"):
        (directory / side).mkdir(parents=True)
    lines = sorted(generator.lines(), key=lambda line: line.at_us)
    Copy(lines, Logs(directory / "queries", directory / "clicks")).write_due(1 << 62)
    return generator


class Documents:
    """A deployment with traffic, in which the documents' commands are run. ``start`` it, ``close`` it."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.site = Site(directory, seed, WITH_WAN)
        self.base = self.site.directory
        self._extend()
        (self.base / "key").write_bytes(os.urandom(32))
        self.words: dict[str, str] = {}
        self._held: tuple[str, ...] = ()
        # A beginner's logs, and the output that ``photon join`` made of them.
        self.own_logs, self.joined = write_logs(directory / "own"), directory / "own" / "out"
        # A deployment file with TLS and no certificates yet; nothing runs there.
        self.certified = directory / "certified"
        self._certified_file()

    def _extend(self) -> None:
        """Status pages, a cache node and a second joiner in east, in addition to the runbooks' deployment."""
        text = self.site.file.read_text()
        text = text.replace("[datacentre.west]\n", '[datacentre.west]\napart.status = "127.0.0.1:1"\n')
        text = text.replace("[datacentre.east]\n", '[datacentre.east]\njoiners = 2\napart.cache = "127.0.0.1:2"\n')
        text = re.sub(r'apart.joiner = "(.*)"', r'apart.joiner = ["\1", "127.0.0.1:3"]', text, count=1)
        self.site.file.write_text(on_free_ports(text))

    def _certified_file(self) -> None:
        self.certified.mkdir()
        text = re.sub(r"^\[wan\].*?\n\n", '[tls]\ndirectory = "certs"\n\n', EXAMPLE.read_text(), flags=re.M | re.S)
        (self.certified / "photon.toml").write_text(text)
        (self.certified / "key").write_bytes(os.urandom(32))

    # -- its life --------------------------------------------------------------------------------------------------
    def prepare(self) -> None:
        """Once ``photon up`` runs: everything that the commands name exists."""
        (self.base / "east/queries" / GONE_LOG).write_text('{"query_id": "10.9.9.9:1:1", "text": "x"}\n')
        self.site.traffic.start()
        own = [f"{self.joined.parent / name}" for name in ("queries", "clicks", "out")]
        done = photon("join", "--primary", own[0], "--foreign", own[1], "--output", own[2], "--once")
        assert done.code in (0, 3), done.err
        until(self.up, WAIT_S, "all processes are up")
        until(lambda: len(self.site.traffic.joined()) > 10, WAIT_S, "events are written")
        self.site.comes_out()
        self._name_words()

    def up(self, names: Sequence[str] = ()) -> bool:
        """Starts services; without names, all of them."""
        try:
            services = self.site.ask(Request(do="ps"))
        except NobodyListens:
            return False
        return all(services[name].state == "up" for name in names or services)

    def _name_words(self) -> None:
        """Names each word of the documents that has a meaning in this deployment."""
        settings = self.site.settings
        joined = sorted(self.site.traffic.joined())
        log, offset = self._place_of(joined[2])
        file = str(self.site.file)
        ports = free_ports(3)
        east, west = (f"http://{settings.datacentre[name].page}" for name in ("east", "west"))
        self.words = {
            "photon.toml": file,
            "/etc/photon/photon.toml": file,
            "/tmp/chaos/photon.toml": file,
            "10s": "2s",
            "out/": str(self.joined),
            "lake/clicks": str(self.base / "lake/clicks"),
            "lake/east": str(self.base / "lake/east"),
            "http://127.0.0.1:8080": east,
            "http://127.0.0.1:8081": east,
            "http://127.0.0.1:8082": west,
            "127.0.0.1:8080": f"127.0.0.1:{ports[0]}",
            "auto:7101": f"auto:{ports[1]}",
            "auto:7201": f"auto:{ports[2]}",
            "10.0.0.7:4711:1760000000000000": joined[0],
            "click-000123": next(iter(self.own_logs.truth.joined)),
            "clicks-3.log:73400320": f"{log}:{offset}",
        }

    def _place_of(self, event_id: str) -> tuple[str, int]:
        logs = self.base / "east/clicks"
        for path in sorted(each for each in logs.rglob("*") if each.is_file()):
            data = path.read_bytes()
            at = data.find(f'"{event_id}"'.encode())
            if at >= 0:
                return str(path.relative_to(logs)), data.rfind(b"\n", 0, at) + 1
        raise AssertionError(f"{event_id} stands in no log")

    def lose_primary_log(self) -> None:
        """A primary log is deleted before its events come."""
        (self.base / "east/queries" / GONE_LOG).unlink()
        time.sleep(2 * MOMENT_S)

    def lose_slot(self) -> None:
        """Joiner east-1 is down permanently, with the disk of its slot and output."""
        self.site.lose("joiner east-1")
        east = self.site.settings.datacentre["east"]
        slot = self.base / east.state / "slots" / "east-1"
        while slot.exists():  # the verifier may be writing there
            shutil.rmtree(slot, ignore_errors=True)
        for path in (self.base / east.output).rglob("east-1-*"):
            path.unlink()

    def stop_dispatcher(self) -> None:
        """If its workers name themselves, it is not the one that photon up runs."""
        self._hold("dispatcher east")

    def stop_parts(self) -> None:
        """Its services are to be one process, in place of those that photon up runs."""
        self._hold("dispatcher east", *(f"joiner east-{n}" for n in (1, 2)), "verifier east", "eventstore east")

    def _hold(self, *names: str) -> None:
        self._held = names
        self.site.lose(*names)

    def go_on(self) -> None:
        """After a document: everything it stopped for a while runs again."""
        if self._held:
            self.site.ask(Request(do="release", names=self._held))
            until(lambda: self.up(self._held), WAIT_S, f"{self._held} run again")
            self._held = ()

    def close(self) -> None:
        self.site.close()

    # -- commands --------------------------------------------------------------------------------------------------
    def run(self, words: Sequence[str], *, codes: Sequence[int] = (0,), cwd: Path | None = None) -> str:
        """Runs a command as written, except for names that differ here; returns its output."""
        arguments = [self.words.get(word, word) for word in words] if cwd is None else list(words)
        endless = bool(ENDLESS & set(words))
        code, said = _run(arguments, cwd or ROOT, {"PHOTON_CONFIG": str(self.site.file)}, endless=endless)
        print(f"$ photon {' '.join(arguments)}\n{said}exit code {code}")
        assert code in codes, f"photon {' '.join(arguments)}: exit code {code}\n{said}"
        assert "Traceback" not in said, said
        return said


def _run(arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], *, endless: bool) -> tuple[int, str]:
    environment = {**os.environ, **environment, "COLUMNS": "200"}
    process = begin(*arguments, cwd=cwd, env=environment, stdout=PIPE, stderr=STDOUT, text=True)
    try:
        if not endless:
            said, _ = process.communicate(timeout=COMMAND_S)
            return process.returncode, said
        _until_it_speaks(process)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=COMMAND_S)
        return process.returncode, said
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _until_it_speaks(process: Process) -> None:
    """Waits until it speaks and a moment longer, in which it does its work."""
    deadline, spoke = time.monotonic() + SILENT_S, False
    while True:
        try:
            said, _ = process.communicate(timeout=MOMENT_S)
        except TimeoutExpired as still_running:
            if spoke or time.monotonic() > deadline:
                return
            spoke = bool(still_running.output)
        else:
            raise AssertionError(f"it has ended: {said}")
