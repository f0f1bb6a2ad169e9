"""The wheel works without a repository: commands, templates, a join, a demonstration."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest

from photon.lab.demo.check import records
from tests.integration.test_adapter_package import installed

ROOT = Path(__file__).parents[2]
DONE = 0
TIMEOUT_S = 240


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel; it sees the required packages of this one, but not Photon."""
    base = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", base]  # the wheel from the sdist
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=TIMEOUT_S)
    [wheel] = base.glob("*.whl")
    installed(wheel, base / "venv")
    return base / "venv"


def environment() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "PHOTON_"))}


def photon(place: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [place / "bin" / "photon", *arguments], cwd=cwd, env=environment(), capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


def test_it_is_the_wheel_that_runs(place: Path, tmp_path: Path) -> None:
    shown = subprocess.run(
        [place / "bin" / "python", "-c", "import photon; print(photon.__file__)"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(shown.stdout.strip()).is_relative_to(place)
    helped = photon(place, tmp_path, "--help")
    assert helped.returncode == DONE, helped.stderr
    assert "adapter" in helped.stdout


def test_own_logs_are_joined(place: Path, tmp_path: Path) -> None:
    for side, lines in (("queries", '{"query_id":"q1"}\n{"query_id":"q2"}\n'),
                        ("clicks", '{"click_id":"c1","query_id":"q2","ts":1700000000}\n')):  # fmt: skip
        (tmp_path / side).mkdir()
        (tmp_path / side / f"{side}.log").write_text(lines)
    logs = ["--primary", "queries", "--foreign", "clicks", "--output", "out"]
    joined = photon(place, tmp_path, "join", *logs, "--once", "--quiet")
    assert joined.returncode == DONE, joined.stderr
    assert [line["key"] for line in records(tmp_path / "out" / "joined")] == ["q2"]


def test_an_adapter_is_begun_and_tried(place: Path, tmp_path: Path) -> None:
    made = photon(place, tmp_path, "adapter", "init", "acme")
    assert made.returncode == DONE, made.stderr
    config = tmp_path / "acme" / "photon.toml"
    config.write_text(config.read_text().replace('"acme"', '"src/acme/adapter.py:Acme"'))
    logs = ["--primary", "acme/logs/primary/requests.log", "--foreign", "acme/logs/foreign/errors.log"]
    tried = photon(place, tmp_path, "adapter", "test", str(config), *logs, "-o", "json")
    assert tried.returncode == DONE, tried.stdout + tried.stderr
    assert orjson.loads(tried.stdout)["matched"] == 4


def test_the_demonstration_runs(place: Path, tmp_path: Path) -> None:
    shown = photon(place, tmp_path, "demo", "--seconds", "5", "--rate", "20", "--no-kill", "-o", "json")
    assert shown.returncode == DONE, shown.stdout + shown.stderr
