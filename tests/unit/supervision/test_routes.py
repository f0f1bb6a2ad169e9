"""The file of routes: written routes are read; errors are reported in one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from photon.supervision.ports import host_and_port
from photon.supervision.routes import ROUTES_MAX, Route, RoutesError, read_routes, write_routes

GOOD: dict[str, Any] = {"listen": "127.0.0.1:7101", "source": "east", "destination": "west", "target": "r2.west:7001"}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    routes = [
        Route("127.0.0.1:7101", "east", "west", "r2.west:7001"),
        Route("0.0.0.0:7102", "west", "east", "127.0.0.1:7001"),
        Route("[::1]:7103", "north-1", "east", "[::1]:7001"),
    ]
    path = tmp_path / "routes.json"
    write_routes(path, routes)
    assert read_routes(path) == routes
    assert [each.name for each in tmp_path.iterdir()] == ["routes.json"]
    write_routes(path, [])
    assert read_routes(path) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "JSON list of objects"),
        ("{}", "JSON list of objects"),
        (b"\xff\xfe", "JSON list of objects"),
        ([{}], "listen"),
        ([GOOD | {"delay": 1}], "unknown field 'delay'"),
        ([GOOD | {"target": 7001}], "$[0].target"),
        ([GOOD | {"listen": "127.0.0.1"}], "route 0: listen: '127.0.0.1' must be host:port"),
        ([GOOD | {"listen": "127.0.0.1:0"}], "route 0: listen: port 0"),
        ([GOOD | {"target": "r2.west:70010"}], "route 0: target: 'r2.west:70010' must be host:port"),
        ([GOOD | {"target": "::1:7001"}], "brackets"),
        ([GOOD | {"target": ":7001"}], "must be host:port"),
        ([GOOD | {"source": "West Coast"}], "route 0: source: 'West Coast' is not a valid region name"),
        ([GOOD | {"source": ""}], "route 0: source: '' is not a valid region name"),
        ([GOOD | {"source": "west"}], "route 0: source and destination are both 'west'"),
        ([GOOD, GOOD | {"source": "north"}], "route 1: route 0 also listens at 127.0.0.1:7101"),
        ([GOOD | {"listen": f"a:{port}"} for port in range(1, ROUTES_MAX + 2)], "at most 1024"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, content: Any, said: str) -> None:
    path = tmp_path / "routes.json"
    if isinstance(content, list):
        path.write_text(json.dumps(content))
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RoutesError) as caught:
        read_routes(path)
    text = str(caught.value)
    assert said in text
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert caught.value.exit_code == 2


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(RoutesError, match="no such file"):
        read_routes(tmp_path / "none.json")
    with pytest.raises(RoutesError, match="cannot be read"):
        read_routes(tmp_path)


def test_routes_that_could_not_be_served_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(RoutesError, match="both 'east'"):
        write_routes(tmp_path / "routes.json", [Route("127.0.0.1:1", "east", "east", "127.0.0.1:2")])
    assert list(tmp_path.iterdir()) == []


def test_host_and_port() -> None:
    assert host_and_port("localhost:80") == ("localhost", 80)
    assert host_and_port("[::1]:80") == ("::1", 80)
    for bad in ("localhost", "localhost:", ":80", "[]:80", "a:b:80", "a:-1", "a:65536", "a: 1", "a:\u0661"):
        with pytest.raises(ValueError, match="must be host:port"):
            host_and_port(bad)
