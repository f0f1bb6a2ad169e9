"""The bill of materials is valid and whole; an audit that could not be made never looks like a clean one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.deploy.scripts import DEPLOY, script

chain = script("supply_chain")
SCRIPT = DEPLOY / "supply_chain.py"


def pins() -> dict[str, str]:
    lines = [line.strip() for line in chain.PINS.read_text().splitlines()]
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_the_bill_names_each_pin_and_is_valid(tmp_path: Path) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    out = tmp_path / "dist" / "photon.cdx.json"
    done = subprocess.run([sys.executable, SCRIPT, "sbom", out], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{out}: {len(pins())} components, CycloneDX 1.6\n"
    bill = json.loads(out.read_text())
    assert {each["name"]: each["version"] for each in bill["components"]} == pins()
    assert bill["metadata"]["component"]["name"] == "photon-join"
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(out.read_text()) is None
    again = tmp_path / "elsewhere" / "bill.json"
    (tmp_path / "rfc3987_syntax.py").write_text("raise ImportError")  # what is the same need not be checked again
    unchecked = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, SCRIPT, "sbom", again]
    done = subprocess.run(command, cwd=tmp_path, env=unchecked, capture_output=True, text=True)
    assert (done.returncode, again.read_bytes()) == (0, out.read_bytes())
    bill["components"][1:] = []  # to validate all costs more than to make them
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None
    del bill["components"][0]["name"]
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is not None


def test_a_service_that_cannot_be_reached_fails_with_one_line() -> None:
    nowhere = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"), "http://127.0.0.1:1")
    environment = {**os.environ, **nowhere, "PIP_CONFIG_FILE": os.devnull, "NO_PROXY": "", "no_proxy": ""}
    command = [sys.executable, SCRIPT, "audit", "--service", "osv"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (3, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("audit: the vulnerability service osv could not be asked (")


GOOD = {"name": "click", "version": "8.1", "vulns": []}
BAD = {"name": "rich", "version": "13", "vulns": [{"id": "PYSEC-1", "fix_versions": ["14", "15"]}, {"id": "GHSA-2"}]}
SKIPPED = {"name": "ply", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("found", "code", "lines"),
    [
        ([GOOD], 0, ["audit: 1 packages, no flaw is known to pypi"]),
        ([GOOD, BAD], 1, ["rich 13: PYSEC-1, mended in 14, 15", "rich 13: GHSA-2, not mended yet"]),
        ([GOOD, SKIPPED], 3, ["audit: 1 of 2 packages are not known to the vulnerability service pypi"]),
        ([], 3, ["audit: 0 of 0 packages are not known"]),
        ([SKIPPED, BAD], 1, ["rich 13: PYSEC-1", "rich 13: GHSA-2", "audit: 1 of 2 packages are not known"]),
    ],
)
def test_verdicts(found: list[object], code: int, lines: list[str]) -> None:
    got, said = chain.verdict(json.dumps({"dependencies": found}), "", "pypi")
    assert got == code
    assert len(said) == len(lines)
    assert all(line.startswith(begin) for line, begin in zip(said, lines, strict=True))


@pytest.mark.parametrize("out", ["", "[]", "{}", "no json"])
def test_no_output_is_no_clean_result(out: str) -> None:
    code, [line] = chain.verdict(out, "Traceback\nConnectionError: nowhere", "osv")
    assert code == 3
    assert "ConnectionError: nowhere" in line
