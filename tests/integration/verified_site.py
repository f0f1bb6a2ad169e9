"""One pipeline of real processes under ``photon up``, including its verifier, and the verifier's reports on its
slots."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
from click.testing import CliRunner

from photon.cli.main import main
from photon.supervision.control import Request, ask
from photon.supervision.states import ServiceState
from tests.deployments import deployment, join
from tests.integration.commands import Detached, until

T_S = 1_760_000_000
SLOT = "east-1"
WAIT_S = 120.0  # much more than needed on a quiet machine


class Site(Detached):
    """Made and started by ``site_in``."""

    def __init__(self, base: Path, owned_alarm: float, replicas: int = 1) -> None:
        self.base = base
        services = ("eventstore", "dispatcher", "verifier", f"joiners.{SLOT}")
        verifier = f'[verifier]\nowned_alarm = "{owned_alarm}s"\ncheck_share = 1.0\nlog_grace = "1s"\n'
        super().__init__(deployment(base, join('unmatched_after = "1s"'), *services, top=verifier, replicas=replicas))
        self.clicks, self.queries = base / "clicks" / "clicks.log", base / "queries" / "queries.log"
        self.state = base / "state" / "slots" / SLOT
        self.events = 0

    def write(self, count: int, *, missing: int = 0) -> None:
        """Clicks with their queries; the last ``missing`` have none."""
        numbers = range(self.events, self.events + count)
        with open(self.queries, "ab") as queries:
            for n in numbers[: count - missing]:
                queries.write(b'{"q":"q%06d","words":"some words of query %06d"}\n' % (n, n))
        with open(self.clicks, "ab") as clicks:
            for n in numbers:
                clicks.write(b'{"id":"c%06d","q":"q%06d","t":%d,"text":"text %06d"}\n' % (n, n, T_S + n, n))
        self.events += count

    # -- processes -------------------------------------------------------------------------------------------------
    def _ask(self, request: Request) -> dict[str, ServiceState]:
        states = {each.name: each for each in ask(self.base / ".photon-run", request).services}
        self.pids |= {each.pid for each in states.values() if each.pid}
        return states

    def hold(self, name: str) -> None:
        """kill -9, and it stays down until it is released."""
        self._ask(Request(do="kill", names=(name,), hold=True))
        until(lambda: self._ask(Request(do="ps"))[name].state == "held", WAIT_S, f"{name} is held")

    def release(self, name: str) -> None:
        self._ask(Request(do="release", names=(name,)))

    def kill_verifier(self) -> None:
        """kill -9 of the running verifier; another one is started in its place."""
        until(lambda: self.verifier_pid() is not None, WAIT_S, "the verifier runs")
        pid = self.verifier_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: self.verifier_pid() != pid, WAIT_S, "it is gone")

    def kill_joiner(self) -> None:
        """kill -9 at once, and it stays down."""
        self._ask(Request(do="kill", names=(f"joiner {SLOT}",), hold=True))
        until(lambda: self.slot()["state"] == "down", WAIT_S, "nobody holds the slot")

    def verifier_pid(self) -> int | None:
        """Pid of the verifier that holds the pipeline's lock."""
        said = self.status()["verifier"]
        number = (said or "").removeprefix("pid ")
        return int(number) if number.isdigit() else None  # it has just created the file

    # -- what is verified ------------------------------------------------------------------------------------------
    def status(self) -> dict[str, Any]:
        """As the command shows it; called in this process, as it is asked again and again."""
        result = CliRunner().invoke(main, ["status", "verifier", "--config", str(self.file), "-o", "json"])
        found: dict[str, Any] = json.loads(result.output)
        wanting = found["verifier"] is None or any(each["alarms"] or each["problem"] for each in found["slots"])
        assert result.exit_code == (3 if wanting else 0), result.output
        return found

    def slot(self) -> dict[str, Any]:
        (only,) = self.status()["slots"]
        return dict(only)

    def alarms(self) -> list[tuple[str, str]]:
        """(finding, event id) of the current alarms."""
        return sorted((alarm["finding"], alarm["event_id"]) for alarm in self.slot()["alarms"])

    def settled(self) -> bool:
        """All clicks are in the output, which is published, cleared and completely checked."""
        if len(self.ids()) < self.events or not self.published():
            return False
        slot = self.slot()
        return bool(slot["published"] == slot["cleared"] == slot["checked"] > 0 and not slot["owned"])

    def cleared(self) -> bool:
        """Published records are cleared, or counted as trouble."""
        slot = self.slot()
        return bool(slot["published"] == slot["cleared"])

    def published(self) -> bool:
        """All lines of the growing files are published."""
        said = orjson.loads((self.state / "durable.json").read_bytes())["files"]
        return all(path.stat().st_size == said.get(f"{path.parent.name}/{path.name}", 0) for path in self.files())

    def output_of(self, kind: str) -> Path:
        """The growing file of a kind."""
        (path,) = [path for path in self.files() if path.parent.name == kind]
        return path

    def ids(self) -> list[str]:
        """Ids of all whole lines of the output: the joiner may be at its last one."""
        whole = (path.read_bytes().rpartition(b"\n")[0] for path in self.files())
        return [orjson.loads(line)["event_id"] for lines in whole for line in lines.splitlines()]

    def files(self) -> list[Path]:
        return sorted((self.base / "output").glob("*/*.jsonl"))

    def publish(self, path: Path) -> None:
        """A stopped joiner would have published the whole file."""
        durable = self.state / "durable.json"
        said = orjson.loads(durable.read_bytes())
        said["files"][f"{path.parent.name}/{path.name}"] = path.stat().st_size
        durable.write_bytes(orjson.dumps(said))


@contextlib.contextmanager
def site_in(
    base: Path,
    *,
    owned_alarm: float = 300.0,
    prepare: Callable[[Path], None] = lambda base: None,
    replicas: int = 1,
) -> Iterator[Site]:
    """A site with running processes, which end with it. ``prepare``: called before they are started."""
    site = Site(base, owned_alarm, replicas)
    prepare(base)
    try:
        site.up()
        yield site
    finally:
        site.down()
