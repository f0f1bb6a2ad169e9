"""photon restart, hold, release and reload against a photon up with the lightest possible processes."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import orjson
import pytest
from click.testing import CliRunner, Result

from photon.cli.main import main
from photon.cli.running import RESTART_S
from photon.config.errors import UsageError
from photon.config.settings import Settings
from photon.supervision.control import NobodyListens, Request, ask
from photon.supervision.deployment import Deployment
from photon.supervision.ports import free_ports
from photon.supervision.routes import write_routes
from photon.supervision.states import ServiceState
from photon.supervision.supervisor import Service
from photon.supervision.up import Up
from photon.supervision.zygote import Zygote, zygote
from tests.unit.refusals import refused
from tests.unit.supervision.lightest import MODULES

WAIT_S = 120.0
FAILED, USAGE, ATTENTION = 1, 2, 3


@dataclass(frozen=True)
class Small(Deployment):
    """Proxies without routes stand in for processes of other kinds; the file had a line for each."""

    lines: tuple[str, ...] = ()

    def stages(self) -> list[list[Service]]:
        return [[self._one(*line.split(",")) for line in self.lines]]

    def _one(self, name: str, datacentre: str, port: str) -> Service:
        address = f"127.0.0.1:{port}"
        command = ("wan", "serve", "--routes", str(self.routes_file), "--control", address, "--stop-with-parent")
        return Service(name, command, self.run / f"{name}.log", address, "photon.v1.Wan", datacentre)


class Site:
    def __init__(self, directory: Path) -> None:
        self.file = directory / "photon.toml"
        self.run = directory / ".photon-run"
        self.run.mkdir()
        self.ports = free_ports(5)
        names = ("registry r1,east", "joiner east-1,east", "joiner west-1,west")
        self.lines = [f"{name},{port}" for name, port in zip(names, self.ports, strict=False)]
        self.write()
        write_routes(self.load().routes_file, [])

    def load(self) -> Deployment:
        lines = tuple(self.file.read_text().splitlines())
        if "a mistake" in lines:
            raise UsageError(f"{self.file}: a mistake")
        return Small(self.file, Settings(), self.run, lines=lines)

    def write(self) -> None:
        self.file.write_text("\n".join(self.lines))

    async def photon(self, verb: str, *arguments: str) -> Result:
        named = ("processes", "--config") if verb == "status" else ()
        command = [verb, *named, str(self.file), *arguments]
        return await asyncio.to_thread(CliRunner().invoke, main, command)

    async def states(self) -> dict[str, ServiceState]:
        try:
            return {each.name: each for each in (await asyncio.to_thread(ask, self.run, Request(do="ps"))).services}
        except NobodyListens:
            return {}

    async def pids(self) -> dict[str, int | None]:
        return {name: state.pid for name, state in (await self.states()).items()}


@pytest.fixture(scope="module")
def imported() -> Iterator[Zygote | None]:
    with zygote(MODULES) as made:
        yield made


@pytest.fixture
async def site(tmp_path: Path, imported: Zygote | None) -> AsyncIterator[Site]:
    """Its processes are up."""
    site, stop = Site(tmp_path), asyncio.Event()

    copies = imported and imported.on_another_loop()
    up = Up(site.load(), say=lambda *_: None, unhealthy_s=None, follow=True, load=site.load, zygote=copies)
    running = asyncio.create_task(up.run(stop))
    try:
        async with asyncio.timeout(WAIT_S):
            while [state.state for state in (await site.states()).values()] != ["up"] * 3:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        yield site
    finally:
        stop.set()
        await running


async def test_restart_is_one_after_the_other_and_waits(site: Site) -> None:
    before = await site.pids()
    done = await site.photon("restart", "joiner")
    assert done.exit_code == 0, done.output
    said = [re.sub(r" after [0-9].*", "", line) for line in done.output.splitlines()]
    assert said == ["joiner east-1: up again", "joiner west-1: up again"]
    after = await site.pids()
    assert [name for name in before if before[name] != after[name]] == ["joiner east-1", "joiner west-1"]
    assert {state.state for state in (await site.states()).values()} == {"up"}
    together = await site.photon("restart", "joiner", "--at-once")
    assert together.exit_code == 0, together.output
    assert set((await site.pids()).values()) & set(after.values()) == {before["registry r1"]}
    again = await site.photon("restart", "joiner-east-1", "registry", "--datacentre", "east")
    assert [line.partition(":")[0] for line in again.output.splitlines()] == ["registry r1", "joiner east-1"]
    some = await site.photon("restart", "cache", "joiner", "status", "--datacentre", "west")
    assert [line.partition(":")[0] for line in some.stdout.splitlines()] == ["joiner west-1"]
    assert some.stderr == "photon: skipped, because no such process runs here: cache, status\n"


async def test_one_that_refuses_to_run_is_not_waited_for(site: Site) -> None:
    routes = site.load().routes_file
    routes.unlink()
    refused = await site.photon("restart", "joiner-east-1", "--timeout", str(10 * WAIT_S))
    assert refused.exit_code == FAILED
    assert "joiner east-1: failing" in refused.output
    assert "no such file" in refused.output
    write_routes(routes, [])
    again = await site.photon("restart", "joiner-east-1")
    assert again.exit_code == 0, again.output


async def test_what_is_held_stays_down_until_it_is_released(site: Site) -> None:
    held = await site.photon("hold", "--datacentre", "east")
    assert (held.exit_code, held.output) == (0, "held: registry r1, joiner east-1\n")
    assert [state.state for state in (await site.states()).values()] == ["held", "held", "up"]
    assert (await site.photon("status", "--wait", "--timeout", "0.5")).exit_code == ATTENTION
    late = await site.photon("restart", "nobody")
    assert late.exit_code == USAGE
    nothing = await site.photon("hold", "datacentre", "joiner", "--datacentre", "east", "--dry-run")
    assert (nothing.exit_code, nothing.stdout) == (0, "would be held: joiner east-1; nothing was changed\n")
    assert nothing.stderr == "photon: skipped, because no such process runs here: datacentre\n"
    released = await site.photon("release", "registry r1", "joiner east-1", "datacentre")
    assert (released.exit_code, released.stdout) == (0, "up: registry r1, joiner east-1\n")
    assert "skipped" in released.stderr
    assert (await site.photon("status", "--wait")).exit_code == 0


async def test_wrong_usage_is_one_line(site: Site) -> None:
    for arguments, why in (
        ((), "restart: give processes"),
        (("joiner east-7",), "joiner east-7: no such process; there are: registry r1, joiner east-1"),
        (("cache", "status"), "cache, status: no such process; there are: registry r1"),
        (("joiner", "--datacentre", "north"), "--datacentre north: has no processes of its own"),
    ):
        assert why in refused(await site.photon("restart", *arguments))


async def test_a_changed_file_is_taken_up(site: Site) -> None:
    before = await site.pids()
    site.lines[0] = f"registry r1,east,{site.ports[3]}"
    site.lines[2] = f"joiner east-2,east,{site.ports[4]}"
    site.write()
    done = await site.photon("reload", "-o", "json")
    assert done.exit_code == 0, done.output
    said = orjson.loads(done.output)
    assert [said["started"], said["ended"]] == [["joiner east-2"], ["joiner west-1"]]
    assert said["changed"] == ["registry r1"]
    after = await site.states()
    assert list(after) == ["registry r1", "joiner east-1", "joiner east-2"]
    assert (after["registry r1"].pid, after["joiner east-1"].pid) == (before["registry r1"], before["joiner east-1"])
    assert (await site.photon("restart", "registry")).exit_code == 0
    assert (await site.states())["registry r1"].address == f"127.0.0.1:{site.ports[3]}"
    nothing = await site.photon("reload")
    assert nothing.output == "started: none\nended: none\nchanged; take effect after a restart: none\n"
    now = await site.pids()
    site.lines.append("a mistake")
    site.write()
    refused = await site.photon("reload")
    assert refused.exit_code == FAILED
    assert "nothing has changed" in refused.output
    assert await site.pids() == now


async def test_a_reload_need_not_wait_for_who_needs_others_first(site: Site) -> None:
    with socket.socket() as taken:  # so that the new one cannot be up
        taken.bind(("127.0.0.1", site.ports[4]))
        taken.listen()
        site.lines.append(f"joiner late,east,{site.ports[4]}")
        site.write()
        assert (await site.photon("reload", "--timeout", "1")).exit_code == FAILED
        site.lines[-1] = f"joiner later,east,{site.ports[4]}"
        site.write()
        done = await site.photon("reload", "--no-wait")
        assert (done.exit_code, done.output.splitlines()[0]) == (0, "started: joiner later")
        assert (await site.states())["joiner later"].state != "up"


async def test_a_reload_says_what_it_restarts_and_never_stops_both_datacentres(site: Site) -> None:
    before = await site.pids()

    def moved() -> None:
        names = ("joiner west-1,west", "registry r1,east", "joiner east-1,east")
        site.ports = free_ports(5)
        site.lines = [f"{name},{port}" for name, port in zip(names, site.ports, strict=False)]
        site.write()

    moved()
    asked = await site.photon("reload", "--restart", "--dry-run")
    [seconds] = re.findall(
        r"restarted one after another, in about (\d+) s \(longer on a busy machine\): ", asked.output
    )
    assert int(seconds) >= 3 * RESTART_S
    assert ": registry r1, joiner east-1, joiner west-1\ndry run: nothing was changed" in asked.output
    assert await site.pids() == before
    done = await site.photon("reload", "--restart")
    assert done.exit_code == 0, done.output
    said = [re.sub(r" after [0-9].*", "", line) for line in done.output.splitlines()]
    assert said[2].endswith(": registry r1, joiner east-1, joiner west-1")
    assert said[3:] == ["registry r1: up again", "joiner east-1: up again", "joiner west-1: up again"]
    assert all(state.start_s for state in (await site.states()).values())
    moved()
    assert (await site.photon("hold", "joiner-west-1")).exit_code == 0
    east = (await site.pids())["joiner east-1"]
    left = await site.photon("reload", "--restart", "--timeout", "5")
    assert left.exit_code == FAILED
    assert (
        "joiner east-1 was not restarted, because nothing would join meanwhile: joiner west-1 is held" in left.output
    )
    assert (await site.pids())["joiner east-1"] == east


@pytest.mark.parametrize(("exit_code", "code"), [(0, 0), (1, ATTENTION), (None, ATTENTION)])
def test_a_joiner_that_was_down_is_drained_if_its_end_was_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exit_code: int | None, code: int
) -> None:
    down = ServiceState(name="joiner east-1", datacentre="east", pid=None, state="restarting", exit_code=exit_code)
    held = msgspec.structs.replace(down, state="held")
    said = iter([[down], [held], [held]])
    monkeypatch.setattr("photon.cli.running.tell", lambda *_: next(said))
    (tmp_path / "photon.toml").write_text("")
    command = ["joiner", "drain", "east-1", "--last", "--config", str(tmp_path / "photon.toml")]
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, "something was still undecided" in result.output) == (code, code == ATTENTION)
