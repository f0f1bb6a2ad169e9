"""Copies of a zygote: real processes that become Photon commands."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from photon.supervision.ports import free_ports
from photon.supervision.routes import write_routes
from photon.supervision.states import LONG_RUN
from photon.supervision.supervisor import Service, Supervisor
from photon.supervision.zygote import MESSAGE_BYTES, Zygote, ZygoteGone, zygote
from tests.unit.supervision.lightest import MODULES
from tests.unit.supervision.test_supervisor import _supervising

READY_S = 60.0


@pytest.fixture
def made() -> Iterator[Zygote]:
    with zygote(MODULES) as made:
        assert made is not None
        yield made


@pytest.fixture
def log(tmp_path: Path) -> Iterator[BinaryIO]:
    with open(tmp_path / "log", "ab") as log:
        yield log


async def until_another(supervisor: Supervisor, pids: set[int | None]) -> None:
    """Waits for a process other than these that is up."""
    async with asyncio.timeout(READY_S):
        while supervisor.pid("proxy") in (None, *pids):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await supervisor.ready(READY_S)


def proxy(directory: Path) -> Service:
    """The lightest service there is."""
    write_routes(directory / "routes.json", [])
    [port] = free_ports(1)
    routes, control = str(directory / "routes.json"), f"127.0.0.1:{port}"
    arguments = ("wan", "serve", "--routes", routes, "--control", control, "--stop-with-parent")
    return Service("proxy", arguments, directory / "logs" / "proxy.log", control, "photon.v1.Wan")


async def test_a_copy_becomes_the_command_and_ends_as_one(tmp_path: Path, made: Zygote, log: BinaryIO) -> None:
    good, bad = await asyncio.gather(made.begin(["--version"], log), made.begin(["wan", "serve"], log))
    async with asyncio.timeout(READY_S):
        assert (await good.wait(), await bad.wait()) == (0, 2)
    assert (good.returncode, bad.returncode) == (0, 2)
    said = (tmp_path / "log").read_text()
    assert "photon 0" in said
    assert "photon: Missing option '--control'" in said
    good.kill()  # of one that has ended: nothing


async def test_a_copy_is_a_child_of_its_supervisor_and_named_after_its_command(tmp_path: Path, made: Zygote) -> None:
    service = proxy(tmp_path)
    async with _supervising([service], zygote=made) as supervisor:
        await supervisor.ready(READY_S)
        pid = supervisor.pid("proxy")
        process = Path(f"/proc/{pid}")
        assert f"PPid:\t{os.getpid()}\n" in (process / "status").read_text()
        assert os.getsid(pid or 0) == pid
        title = (process / "cmdline").read_bytes().rstrip(b"\0").decode()
        assert title == " ".join(("photon", *service.arguments))
        held = sorted((os.readlink(each) for each in (process / "fd").iterdir()), key=str)
        assert held.count(str(service.log)) == 2  # standard output and error, and no third
        assert not [each for each in held if each in sockets_of(made)]


def sockets_of(made: Zygote) -> set[str]:
    """Its process's ends of the connection to its supervisor."""
    directory = Path(f"/proc/{made._process.pid}/fd")
    return {os.readlink(each) for each in directory.iterdir() if "socket" in os.readlink(each)}


async def test_a_killed_zygote_takes_nobody_along_and_is_not_needed(
    tmp_path: Path, made: Zygote, log: BinaryIO
) -> None:
    heard: list[str] = []
    async with _supervising(
        [proxy(tmp_path)], policy=LONG_RUN, tell=lambda name, what: heard.append(f"{name} {what}"), zygote=made
    ) as supervisor:
        await supervisor.ready(READY_S)
        first = supervisor.pid("proxy")
        os.kill(made._process.pid, signal.SIGKILL)
        with pytest.raises(ZygoteGone):
            await made.begin(["--version"], log)
        assert supervisor.pid("proxy") == first
        supervisor.kill("proxy")
        await until_another(supervisor, {first})
        assert supervisor.states()[0].exit_code == -signal.SIGKILL
        assert [line for line in heard if "from now on, processes start without the zygote" in line]


async def test_what_an_operator_restarts_is_the_program_as_it_is_on_disk(tmp_path: Path, made: Zygote) -> None:
    """A process that dies by itself comes back as it was, until an operator restarts something: that may be for an
    upgrade in place, and no copy of the old release may come back after it."""
    async with _supervising([proxy(tmp_path)], zygote=made) as supervisor:

        def executed() -> bool:
            return "python" in Path(f"/proc/{supervisor.pid('proxy')}/cmdline").read_text()

        await supervisor.ready(READY_S)
        assert not executed()
        pids = {supervisor.pid("proxy")}
        for step, afresh in ((supervisor.kill, False), (supervisor.restart, True), (supervisor.kill, True)):
            step("proxy")
            await until_another(supervisor, pids)
            pids.add(supervisor.pid("proxy"))
            assert executed() is afresh


async def test_copies_end_with_a_supervisor_that_is_gone(tmp_path: Path, made: Zygote, log: BinaryIO) -> None:
    """Their standard input ends with it: here one copy's input is closed at our end."""
    copy = await made.begin(proxy(tmp_path).arguments, log)
    os.close(copy._lifeline)  # type: ignore[attr-defined]
    copy._lifeline = os.open(os.devnull, os.O_RDONLY)  # type: ignore[attr-defined]
    async with asyncio.timeout(READY_S):
        assert await copy.wait() == 0


async def test_a_command_line_that_is_too_long_is_not_for_a_zygote(made: Zygote, log: BinaryIO) -> None:
    with pytest.raises(ZygoteGone):
        await made.begin(["x" * 10 * MESSAGE_BYTES], log)
    assert await (await made.begin(["--version"], log)).wait() == 0


async def test_what_is_no_request_is_answered_and_the_next_one_is_served(made: Zygote, log: BinaryIO) -> None:
    for data in (b"{", b'{"arguments":1}', b'{"other":[]}'):
        with pytest.raises(ZygoteGone, match="cannot fork"):
            await asyncio.to_thread(made._ask, data, [log.fileno()])
    assert await (await made.begin(["--version"], log)).wait() == 0


async def test_a_zygote_that_cannot_import_is_gone_and_ends(log: BinaryIO) -> None:
    with zygote(["photon.no_such_module"]) as made:
        assert made is not None
        with pytest.raises(ZygoteGone, match="does not answer"):
            await made.begin(["--version"], log)


async def test_where_processes_cannot_be_watched_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(pid: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "pidfd_open", forbidden)
    with zygote(MODULES) as made:
        assert made is None


@pytest.mark.parametrize(
    ("ends", "code", "said"),
    [("", 0, ""), ("raise SystemExit", 0, ""), ("raise SystemExit(3)", 3, ""), ("raise SystemExit('no')", 1, "no\n")],
)
def test_a_copy_ends_as_an_interpreter_does(tmp_path: Path, ends: str, code: int, said: str) -> None:
    (tmp_path / "ending.py").write_text(ends)
    words = [sys.executable, "-c", "from photon.supervision.zygote_main import run; run('ending')"]
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, said)


COPIED = """
import asyncio, os, sys, threading
from photon.supervision.zygote import zygote

async def version(made):
    with open(sys.argv[1], "ab") as log:
        child = await made.begin(["--version"], log)
        return await child.wait()

print("once", flush=False)
with zygote(None) as made:
    first, pid = asyncio.run(version(made)), made._process.pid
try:
    os.kill(pid, 0)
except ProcessLookupError:
    print(first, "and gone")
waits = threading.Event()
threading.Thread(target=waits.wait).start()
with zygote(None) as made:
    print(made)
waits.set()
"""


def test_a_zygote_may_be_a_copy_of_a_process_that_has_one_thread(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COPIED, tmp_path / "log"], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("once\n0 and gone\nNone\n", "")
    assert "photon 0" in (tmp_path / "log").read_text()
