"""The service commands with impossible input: one clear line, the right exit code."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from photon.supervision.ports import free_ports
from tests.integration.commands import Result, photon
from tests.integration.join_logs import CONFIG
from tests.integration.test_join_bad_input import FAILED, USAGE, one_line


@dataclass(frozen=True)
class Deployment:
    file: Path
    ports: dict[str, int]

    def serve(self, noun: str, *more: str | Path) -> Result:
        return photon("serve", noun, "--config", self.file, *more, timeout=60.0)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    for name in ("queries", "clicks"):
        (tmp_path / name).mkdir()
    (tmp_path / "key").write_bytes(b"k" * 32)
    ports = dict(zip(("registry", "eventstore", "joiner"), free_ports(3), strict=True))
    file = tmp_path / "photon.toml"
    file.write_text(
        f"""key_file = "key"
{CONFIG}
[registry.replicas.r1]
address = "127.0.0.1:{ports["registry"]}"
directory = "state/r1"
[datacentre.east]
join = "clicks"
primary = "queries"
foreign = "clicks"
output = "out"
state = "state/east"
address = "127.0.0.1:1"
apart.eventstore = "127.0.0.1:{ports["eventstore"]}"
apart.joiner = "127.0.0.1:{ports["joiner"]}"
"""
    )
    return Deployment(file, ports)


@pytest.fixture
def taken(deployment: Deployment) -> Iterator[Deployment]:
    """Another process listens on all ports."""
    with contextlib.ExitStack() as stack:
        for port in deployment.ports.values():
            stack.enter_context(socket.create_server(("127.0.0.1", port)))
        yield deployment


@pytest.mark.parametrize("noun", ["registry", "eventstore", "joiner"])
def test_a_port_in_use(taken: Deployment, noun: str) -> None:
    more = ["r1"] if noun == "registry" else []
    one_line(taken.serve(noun, *more), FAILED, f"127.0.0.1:{taken.ports[noun]}", "is the port in use?")


@pytest.mark.parametrize(
    ("noun", "options", "said"),
    [
        ("registry", ["r9"], "registry r9: not in [registry.replicas]; there are: r1"),
        ("eventstore", ["--datacentre", "west"], "--datacentre west: not in the configuration; there are: east"),
        ("joiner", ["--datacentre", "west"], "--datacentre west: not in the configuration; there are: east"),
        ("dispatcher", ["--datacentre", "west"], "--datacentre west: not in the configuration; there are: east"),
        ("joiner", ["zz"], "joiner zz: not one of datacentre east; there are: east-1"),
        ("registry", [], "give the replica's name: photon serve registry NAME"),
        ("cache", ["--address", "127.0.0.1:1"], "--address cannot be used with serve cache"),
        ("verifier", ["v1"], "v1 cannot be used with serve verifier"),
        ("eventstore", ["--address", "127.0.0.1:1"], "give --primary, --state and --address together"),
        ("dispatcher", ["--set", "limits.recrod=1"], "limits.recrod: unknown key"),
    ],
)
def test_names_and_options(deployment: Deployment, noun: str, options: list[str], said: str) -> None:
    one_line(deployment.serve(noun, *options), USAGE, said)


@pytest.mark.parametrize("noun", ["joiner", "dispatcher"])
@pytest.mark.parametrize(
    ("key", "said"), [(None, "cannot be read"), (b"short", "has 5 bytes; it must have 16 to 64")]
)
def test_key_file(deployment: Deployment, noun: str, key: bytes | None, said: str) -> None:
    path = deployment.file.parent / "key"
    path.unlink()
    if key is not None:
        path.write_bytes(key)
    one_line(deployment.serve(noun), USAGE, f"key_file = '{path}': {said}")


@pytest.mark.parametrize("noun", ["eventstore", "joiner", "dispatcher"])
def test_without_a_deployment_file(noun: str) -> None:
    one_line(
        photon("serve", noun), USAGE, "the configuration has no datacentre; give a deployment file with --config"
    )


@pytest.mark.parametrize(("noun", "logs"), [("eventstore", "queries"), ("dispatcher", "clicks")])
def test_log_directories_that_are_not_there(deployment: Deployment, noun: str, logs: str) -> None:
    path = deployment.file.parent / logs
    path.rmdir()
    result = deployment.serve(noun)
    assert result.code in (FAILED, USAGE)
    assert result.err.splitlines()[-1].startswith("photon: ")
    assert f"{path}: no such directory; create it or name another one" in result.err.splitlines()[-1]
    assert "Traceback" not in result.err
