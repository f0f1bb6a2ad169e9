"""The supervisor's handling of services: real processes, the lightest possible (a proxy without routes)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from photon.supervision import supervisor as supervision
from photon.supervision.ports import free_ports
from photon.supervision.routes import write_routes
from photon.supervision.states import FAILURES_MAX, LONG_RUN
from photon.supervision.supervisor import Service, ServiceFailed, Supervisor, Watching
from photon.supervision.zygote import Zygote, zygote
from tests.unit.supervision.lightest import MODULES

READY_S = 180.0


def _proxies(directory: Path, count: int) -> list[Service]:
    """Services ``p0``, ``p1``, … of the datacentres east and west in turns."""
    write_routes(directory / "routes.json", [])
    return [
        Service(
            f"p{number}",
            ("wan", "serve", "--routes", str(directory / "routes.json"), "--control", f"127.0.0.1:{port}",
             "--stop-with-parent"),
            directory / "logs" / f"p{number}.log",
            f"127.0.0.1:{port}",
            "photon.v1.Wan",
            ("east", "west")[number % 2],
        )
        for number, port in enumerate(free_ports(count))
    ]  # fmt: skip


def _lives(pid: int | None) -> bool:
    return Path(f"/proc/{pid}").exists()


def _append(path: Path, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


async def _until(condition: Callable[[], object], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + READY_S
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"not within {READY_S:g} s: {what}"
        await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def imported() -> Iterator[Zygote | None]:
    with zygote(MODULES) as made:
        yield made


@pytest.fixture
def copies(imported: Zygote | None) -> Zygote | None:
    """The whole file's zygote, on the event loop of one test."""
    return imported and imported.on_another_loop()


@pytest.fixture(params=["afresh", "copies"] if os.environ.get("PHOTON_FULL") else ["copies"])
async def supervisor(request: pytest.FixtureRequest, copies: Zygote | None) -> AsyncIterator[Supervisor]:
    """One that looks after its processes often, with a zygote and without."""
    watching = Watching(every_s=0.1, unhealthy_s=None, log_bytes=1000)
    supervisor = Supervisor(policy=LONG_RUN, watching=watching, zygote=copies if request.param == "copies" else None)
    yield supervisor
    await supervisor.stop()


@contextlib.asynccontextmanager
async def _supervising(services: list[Service], **options: Any) -> AsyncIterator[Supervisor]:
    """A supervisor that has started these; it is stopped at the end."""
    supervisor = Supervisor(**options)
    await supervisor.start(services)
    try:
        yield supervisor
    finally:
        await supervisor.stop()


def _state(supervisor: Supervisor, name: str) -> str:
    return {state.name: state.state for state in supervisor.states()}[name]


@pytest.mark.parametrize("supervisor", ["afresh", "copies"], indirect=True)
async def test_what_an_operator_may_do(tmp_path: Path, supervisor: Supervisor) -> None:
    """kill, hold, release, pause, resume, restart: by name, and the output of ``states`` meanwhile."""
    await supervisor.start(_proxies(tmp_path, 3))
    assert supervisor.names() == ["p0", "p1", "p2"]
    assert supervisor.names(datacentre="east") == ["p0", "p2"]
    assert _state(supervisor, "p0") in ("starting", "up")
    await supervisor.ready(READY_S)
    await _until(lambda: {state.state for state in supervisor.states()} == {"up"}, "all up")

    first = supervisor.pid("p0")
    assert supervisor.kill("p0") == first
    await supervisor.ready(READY_S, ["p0"])
    assert supervisor.pid("p0") not in (None, first)
    assert (supervisor.starts("p0"), supervisor.starts("p1")) == (2, 1)

    supervisor.kill("p0", hold=True)
    supervisor.hold("p2")
    await supervisor.gone(["p0", "p2"])
    assert (_state(supervisor, "p0"), _state(supervisor, "p2")) == ("held", "held")
    await supervisor.ready(READY_S)  # of those that are not held
    with pytest.raises(ServiceFailed, match=r"p0 is not up after 0\.1 s"):
        await supervisor.ready(0.1, ["p0"])
    assert supervisor.kill("p0") is None
    supervisor.release("p0")
    supervisor.restart("p2")
    await supervisor.ready(READY_S, ["p0", "p2"])

    paused = supervisor.pause("p1")
    assert paused is not None
    assert _state(supervisor, "p1") == "paused"
    supervisor.resume("p1")
    await supervisor.ready(READY_S, ["p1"])
    await _until(lambda: _state(supervisor, "p1") == "up", "resumed")
    assert (supervisor.pid("p1"), supervisor.starts("p1")) == (paused, 1)

    supervisor.pause("p1")
    supervisor.restart("p1")
    await _until(lambda: supervisor.pid("p1") not in (None, paused), "restarted, though it was paused")
    assert supervisor.failure() is None


async def test_nothing_starts_after_the_stop(tmp_path: Path, supervisor: Supervisor) -> None:
    first, second = _proxies(tmp_path, 2)
    await supervisor.start([first])
    await supervisor.stop()
    await supervisor.start([second])
    assert (supervisor.pid("p0"), supervisor.pid("p1")) == (None, None)


async def test_a_process_is_another_one_from_its_next_start_and_goes(tmp_path: Path, supervisor: Supervisor) -> None:
    first, second, moved = _proxies(tmp_path, 3)
    await supervisor.start([first, second])
    await supervisor.ready(READY_S)
    old = supervisor.pid("p0")
    supervisor.redefine(replace(moved, name="p0", datacentre="west"))
    before = supervisor.states()[0]
    assert (before.pid, before.address, before.datacentre) == (old, first.address, "west")
    supervisor.restart("p0")
    await _until(lambda: supervisor.pid("p0") not in (None, old), "another process")
    await _until(lambda: _state(supervisor, "p0") == "up", "up")
    assert supervisor.states()[0].address == moved.address

    pid = supervisor.pid("p1")
    await supervisor.remove(["p1"])
    assert supervisor.names() == ["p0"]
    assert not _lives(pid)
    await supervisor.start([second])
    await supervisor.ready(READY_S, ["p1"])


async def test_one_that_hangs_is_killed_and_one_that_was_paused_is_not(tmp_path: Path, copies: Zygote | None) -> None:
    async with _supervising(
        _proxies(tmp_path, 1), policy=LONG_RUN, watching=Watching(every_s=0.1, unhealthy_s=1.5), zygote=copies
    ) as supervisor:
        await _until(lambda: _state(supervisor, "p0") == "up", "up")
        pid = supervisor.pause("p0")
        await asyncio.sleep(3.0)  # for longer than one that hangs would live
        assert supervisor.pid("p0") == pid
        assert _state(supervisor, "p0") == "paused"
        supervisor.resume("p0")
        os.kill(pid, signal.SIGSTOP)  # now behind the supervisor's back
        await _until(lambda: supervisor.pid("p0") not in (None, pid), "another process")
        assert supervisor.states()[0].exit_code == -signal.SIGKILL
        await _until(lambda: _state(supervisor, "p0") == "up", "up again")


@pytest.mark.parametrize(("hang", "said"), [("while True: pass", "ran for"), ("time.sleep(1000)", "ran for 0 s")])
async def test_a_loop_that_spins_and_one_that_stands_still_are_killed(
    tmp_path: Path, copies: Zygote | None, hang: str, said: str
) -> None:
    heard: list[str] = []
    supervisor = Supervisor(
        policy=LONG_RUN,
        watching=Watching(every_s=0.1, unhealthy_s=1.5),
        tell=lambda _, what: heard.append(what),
        zygote=copies,
    )
    (tmp_path / "sitecustomize.py").write_text(
        f"import signal, time\ndef hang(*_):\n    {hang}\nsignal.signal(signal.SIGUSR1, hang)\n"
    )
    await supervisor.start(_proxies(tmp_path, 1))
    try:
        await _until(lambda: _state(supervisor, "p0") == "up", "up")
        supervisor.restart("p0", {"PYTHONPATH": str(tmp_path)})
        await _until(lambda: supervisor.starts("p0") == 2 and _state(supervisor, "p0") == "up", "up again")
        pid = supervisor.pid("p0")
        os.kill(pid, signal.SIGUSR1)
        await _until(lambda: supervisor.pid("p0") not in (None, pid), "another process")
        [killed] = [line for line in heard if "SIGKILL" in line]
        assert said in killed
    finally:
        await supervisor.stop()


async def test_where_many_hang_one_is_killed_at_a_time(tmp_path: Path, copies: Zygote | None) -> None:
    unhealthy_s = 1.5
    killed: list[float] = []

    def tell(_: str, what: str) -> None:
        if "SIGKILL" in what:
            killed.append(asyncio.get_running_loop().time())

    async with _supervising(
        _proxies(tmp_path, 2),
        policy=LONG_RUN,
        watching=Watching(every_s=0.1, unhealthy_s=unhealthy_s),
        tell=tell,
        zygote=copies,
    ) as supervisor:
        await _until(lambda: [state.state for state in supervisor.states()] == ["up", "up"], "up")
        for name in supervisor.names():
            pid = supervisor.pid(name)
            os.kill(pid, signal.SIGSTOP)
        await _until(lambda: len(killed) > 1, "both are killed")
        assert killed[1] - killed[0] > unhealthy_s


async def test_without_watching_nobody_is_killed(tmp_path: Path, copies: Zygote | None) -> None:
    async with _supervising(_proxies(tmp_path, 1), zygote=copies) as supervisor:
        await supervisor.ready(READY_S)
        pid = supervisor.pid("p0")
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(ServiceFailed):
            await supervisor.ready(0.5)
        os.kill(pid, signal.SIGCONT)
        await supervisor.ready(READY_S)
        assert (supervisor.pid("p0"), supervisor.starts("p0")) == (pid, 1)


async def test_a_usage_error_is_failing_and_is_tried_again_when_told(tmp_path: Path, supervisor: Supervisor) -> None:
    [good] = _proxies(tmp_path, 1)
    (tmp_path / "routes.json").rename(tmp_path / "away.json")
    await supervisor.start([good])
    await _until(lambda: _state(supervisor, "p0") == "failing", "failing")
    [state] = supervisor.states()
    assert state.restart_in_s > LONG_RUN.usage_wait_s / 2
    assert state.exit_code == 2
    assert "no such file" in state.detail
    supervisor.restart("p0")
    await _until(lambda: supervisor.pid("p0") is not None, "tried again")
    assert (_state(supervisor, "p0"), supervisor.states()[0].detail) == ("failing", state.detail)
    await _until(lambda: supervisor.pid("p0") is None, "failed again")
    assert supervisor.failure() is None  # this one never gives up
    (tmp_path / "away.json").rename(tmp_path / "routes.json")
    supervisor.restart("p0")
    await _until(lambda: _state(supervisor, "p0") == "up", "up")


async def test_what_cannot_even_be_started_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_process(*arguments: object, **options: object) -> None:
        raise OSError(24, "Too many open files")

    supervisor = Supervisor(policy=LONG_RUN, watching=Watching(every_s=0.1))
    try:
        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "create_subprocess_exec", no_process)
            await supervisor.start(_proxies(tmp_path, 1))
            await _until(lambda: _state(supervisor, "p0") == "failing", "failing")
            assert supervisor.states()[0].detail == "cannot be started: Too many open files"
        await _until(lambda: _state(supervisor, "p0") == "up", "up")
    finally:
        await supervisor.stop()


async def test_one_whose_port_another_process_has_is_not_up(tmp_path: Path, supervisor: Supervisor) -> None:
    [first] = _proxies(tmp_path, 1)
    second = replace(first, name="second", log=tmp_path / "second.log")
    other = Supervisor()
    await other.start([first])
    try:
        await other.ready(READY_S)
        await supervisor.start([second])
        await _until(lambda: supervisor.states()[0].state == "failing", "failing")
        assert "is the port in use?" in supervisor.states()[0].detail
        with pytest.raises(ServiceFailed):
            await supervisor.ready(2.0)
    finally:
        await other.stop()
    supervisor.restart("second")
    await supervisor.ready(READY_S)


async def test_stages_are_stopped_one_after_the_other(tmp_path: Path, copies: Zygote | None) -> None:
    heard: list[str] = []
    supervisor = Supervisor(tell=lambda name, what: heard.append(f"{name} {what}"), zygote=copies)
    await supervisor.start(_proxies(tmp_path, 3))
    await supervisor.ready(READY_S)
    pids = [supervisor.pid(name) for name in supervisor.names()]
    ends: list[str] = []
    watched = {name: supervisor._running[name].process for name in supervisor.names()}

    async def watch(name: str) -> None:
        process = watched[name]
        await process.wait()
        ends.append(name)

    watchers = [asyncio.create_task(watch(name)) for name in supervisor.names()]
    await supervisor.stop([["p2"], ["p0"]])
    await asyncio.gather(*watchers)
    assert ends == ["p2", "p0", "p1"]
    assert not any(_lives(pid) for pid in pids)
    assert {state.state for state in supervisor.states()} == {"ended"}
    assert [line.partition(", pid")[0] for line in heard] == ["p0 started", "p1 started", "p2 started"]


async def test_a_start_while_all_is_stopped_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spawn = asyncio.create_subprocess_exec
    pids: list[int] = []

    async def slowly(*arguments: str, **options: object) -> asyncio.subprocess.Process:
        process = await spawn(*arguments, **options)  # type: ignore[arg-type]
        pids.append(process.pid)
        await asyncio.sleep(0.3)
        return process

    supervisor = Supervisor()
    await supervisor.start(_proxies(tmp_path, 1))
    await supervisor.ready(READY_S)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", slowly)
    supervisor.kill("p0")
    await _until(lambda: pids, "the second process")
    await supervisor.stop()
    assert not _lives(pids[0])


async def test_logs_are_bounded(tmp_path: Path, supervisor: Supervisor) -> None:
    [service] = _proxies(tmp_path, 1)
    service.log.parent.mkdir()
    service.log.write_text("before\n" * 1000)
    await supervisor.start([service])
    assert service.log.with_name("p0.log.1").read_text() == "before\n" * 1000
    _append(service.log, "while it runs\n" * 1000)
    await _until(lambda: service.log.stat().st_size <= 1000, "cut")
    assert "while it runs" in service.log.with_name("p0.log.1").read_text()


async def test_one_that_cannot_be_started_again_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with _supervising([Service("store", ("--version",), tmp_path / "logs" / "store.log")]) as supervisor:
        assert supervisor.failure() is None

        async def no_process(*arguments: object, **options: object) -> None:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(asyncio, "create_subprocess_exec", no_process)
        async with asyncio.timeout(30):
            keeper = supervisor._running["store"].task
            assert keeper is not None
            await asyncio.wait({keeper})
        assert supervisor.failure() == "store cannot be started again: [Errno 24] Too many open files"


async def test_errors_of_one_without_health_add_up_though_it_was_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begin(arguments: object, log: BinaryIO, environment: object) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec("sh", "-c", "sleep 0.2; echo damaged >&2; exit 1", stderr=log)

    monkeypatch.setattr(supervision, "begin", begin)
    service = Service("owner", (), tmp_path / "logs" / "owner.log")
    async with _supervising([service], watching=Watching(every_s=0.02)) as supervisor:
        await _until(supervisor.failure, "failing")
        assert supervisor.failure() == "owner cannot continue: damaged"
        assert supervisor.starts("owner") == FAILURES_MAX


async def test_who_was_given_variables_says_so_until_a_restart_without(
    tmp_path: Path, supervisor: Supervisor
) -> None:
    await supervisor.start(_proxies(tmp_path, 1))
    supervisor.restart("p0", {"FAKETIME": "+60"})
    assert supervisor.states()[0].variables == ("FAKETIME",)
    supervisor.restart("p0")
    assert supervisor.states()[0].variables == ("FAKETIME",)
    supervisor.restart("p0", {})
    assert supervisor.states()[0].variables == ()
