"""The run directory of ``photon up``: its lock, and the ports of its proxy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from photon.config.errors import UsageError
from photon.config.loader import load
from photon.supervision.ports import can_listen, free_ports, host_and_port
from photon.supervision.routes import Route, kept_routes, write_routes
from photon.supervision.run_directory import RunBusy, is_locked, locked, run_directory, wait_unlocked
from tests.unit.supervision.deployments import EXAMPLE, example_settings

HOLD = """
import sys, pathlib
from photon.supervision.run_directory import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lock."""
    source = Path(__file__).parents[3] / "src"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(source)},
    )
    with process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_a_second_one_is_refused_and_told_who_is_there(tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    assert is_locked(tmp_path)
    with pytest.raises(RunBusy, match=rf"\(pid {holder.pid}\) already runs in {tmp_path};"), locked(tmp_path):
        pass
    assert not wait_unlocked(tmp_path, 0.1)


def test_the_lock_of_a_killed_one_is_free(tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    holder.kill()
    assert wait_unlocked(tmp_path, 10.0)
    with locked(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)


def test_where_nothing_ever_ran_nothing_is_locked(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_what_cannot_be_a_run_directory_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file: cannot be created .*--run"), locked(tmp_path / "file"):
        pass


def test_the_directory_lies_beside_the_file_unless_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_directory(Path("d/photon.toml"), None) == tmp_path / "d" / ".photon-run"
    assert run_directory(Path("d/photon.toml"), Path("other")) == tmp_path / "other"


def test_ports_are_kept_as_long_as_they_are_free(tmp_path: Path) -> None:
    settings, file = example_settings(), tmp_path / "routes.json"
    first = kept_routes(settings, file, draw=lambda n: list(range(9000, 9000 + n)), is_free=lambda _: True)
    write_routes(file, first)
    assert kept_routes(settings, file, draw=lambda n: list(range(9500, 9500 + n)), is_free=lambda _: True) == first
    busy = first[2].listen
    again = kept_routes(settings, file, draw=lambda n: list(range(9500, 9500 + n)), is_free=lambda a: a != busy)
    assert [number for number, (old, new) in enumerate(zip(first, again, strict=True)) if old != new] == [2]
    assert host_and_port(again[2].listen)[1] >= 9500
    assert (again[2].source, again[2].destination, again[2].target) == (
        first[2].source,
        first[2].destination,
        first[2].target,
    )


def test_no_port_of_the_file_and_none_that_is_kept_is_drawn(tmp_path: Path) -> None:
    settings, file = example_settings(), tmp_path / "routes.json"
    # the draw offers the ports of the file itself, then those that the other routes have
    routes = kept_routes(settings, file, draw=lambda n: list(range(7500, 7500 + n)), is_free=lambda _: True)
    write_routes(file, routes)
    busy = {routes[0].listen, routes[1].listen}
    again = kept_routes(
        settings, file, draw=lambda n: list(range(7500, 7500 + n)), is_free=lambda address: address not in busy
    )
    named = {7500, 7501, 7502, 7503, 7511, 7512, 7513, 7514, 7521, 7522, 7523, 7524}
    for each in (routes, again):
        ports = [host_and_port(route.listen)[1] for route in each]
        assert len(set(ports)) == 6
        assert not named & set(ports)


def test_no_process_of_the_file_finds_its_port_taken_by_the_proxy(tmp_path: Path) -> None:
    flags = ['datacentre.east.apart.status="127.0.0.1:8080"', "output.copies=2", "join.clicks.identical_copies=true"]
    flags += [f'datacentre.{name}.apart.copies="127.0.0.1:808{n}"' for n, name in enumerate(("east", "west"), 1)]
    settings = load(EXAMPLE, environment={}, flags=flags)
    offered = [7515, 7525, 8080, 8081, 8082, *range(9000, 9100)]  # verifiers, a page, keepers of copies
    routes = kept_routes(settings, tmp_path / "routes.json", draw=lambda n: offered[:n], is_free=lambda _: True)
    assert {host_and_port(route.listen)[1] for route in routes} == set(range(9000, 9000 + len(routes)))


def test_a_broken_file_of_routes_counts_as_none(tmp_path: Path) -> None:
    settings, file = example_settings(), tmp_path / "routes.json"
    file.write_text("{")
    assert len(kept_routes(settings, file, draw=lambda n: list(range(9000, 9000 + n)))) == 6


def test_a_port_is_free_or_not() -> None:
    import socket

    [port] = free_ports(1)
    assert can_listen(f"127.0.0.1:{port}")
    with socket.create_server(("127.0.0.1", port)):
        assert not can_listen(f"127.0.0.1:{port}")


def test_routes_of_other_replicas_are_not_kept(tmp_path: Path) -> None:
    settings, file = example_settings(), tmp_path / "routes.json"
    write_routes(file, [Route("127.0.0.1:9999", "east", "west", "127.0.0.1:1")])
    routes = kept_routes(settings, file, draw=lambda n: list(range(9000, 9000 + n)), is_free=lambda _: True)
    assert "127.0.0.1:9999" not in {route.listen for route in routes}


def test_a_port_that_was_drawn_and_is_not_yet_listened_on_is_not_drawn_again() -> None:
    first = free_ports(40)
    assert not set(first) & set(free_ports(40))
