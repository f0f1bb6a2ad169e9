"""`photon adapter init`: the package is installed without network, passes its own tests, and joins its logs."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import orjson

from photon.lab.demo.check import records
from tests.integration.commands import photon

ATTENTION, WRONG = 3, 2


def installed(folder: Path, place: Path) -> Path:
    """The Python of a fresh environment that has this package and the packages of the current one."""
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    (site / "seen.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-compile", "--no-index", "--no-deps", "--no-build-isolation", str(folder)]
    subprocess.run([*pip, *offline], check=True, timeout=120)
    return python


def ran(python: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-m", *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_new_package_passes_its_tests_and_joins(tmp_path: Path) -> None:
    made = photon("adapter", "init", "acme_errors", "--directory", tmp_path, "-o", "json")
    assert made.code == 0, made.err
    folder = Path(made.json["directory"])
    again = photon("adapter", "init", "acme_errors", "--directory", tmp_path)
    assert (again.code, again.err.count("\n")) == (WRONG, 1)
    python = installed(folder, tmp_path / "venv")
    tests = ran(python, folder, "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio")
    assert tests.returncode == 0, tests.stdout
    assert "12 passed" in tests.stdout
    shown = orjson.loads(ran(python, folder, "photon", "adapter", "show", "-o", "json").stdout)
    (own,) = (each for each in shown["adapters"] if each["name"] == "acme_errors")
    assert (own["package"], own["version"], own["fault"]) == ("photon-adapter-acme-errors", "0.1.0", None)
    logs = ["--primary", "logs/primary", "--foreign", "logs/foreign"]
    out = tmp_path / "out"
    joined = ran(
        python, folder, "photon", "join", *logs, "--output", str(out), "--config", "photon.toml", "--once", "--quiet"
    )
    assert joined.returncode == 0, joined.stderr
    lines = records(out / "joined")
    assert {line["event_id"]: line["primary"]["path"] for line in lines} == {
        "e-1": "/checkout", "e-2": "/search?q=lamp", "e-3": "/checkout", "e-4": "/account",
    }  # fmt: skip
