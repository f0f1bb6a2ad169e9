"""What the image is made of (deploy/docker/requirements.txt): a bill of materials, and an audit for known flaws.

    python deploy/supply_chain.py sbom dist/photon.cdx.json     CycloneDX 1.6, checked against its schema
    python deploy/supply_chain.py audit [--service pypi|osv]    exit code 1: flaws are known; 3: it could not be asked

The audit asks a vulnerability service for each pinned package. One that cannot be reached, or that does not know the
packages (a mirror without vulnerability data answers so), would look like a clean result: it is said, and fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "deploy" / "docker" / "requirements.txt"
CLEAN, FLAWED, NOT_ASKED = 0, 1, 3
SPEC = "1.6"
NETWORK_S = 15


def sbom(out: Path) -> int:
    """Writes it, the same bytes each time; the tool's exit code. What it warns of (a flat list has no graph) is not
    repeated."""
    out.parent.mkdir(parents=True, exist_ok=True)
    command = [
        *(
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "cyclonedx_py",
            "requirements",
            "--spec-version",
            SPEC,
            "--of",
            "JSON",
        ),
        *("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application", "--output-reproducible"),
        *("--validate", "-o", str(out), str(PINS)),
    ]
    return subprocess.run(command, cwd=ROOT).returncode


def audit(service: str) -> tuple[int, list[str]]:
    """Asks; the exit code, and lines for people."""
    command = [
        *(sys.executable, "-m", "pip_audit", "--requirement", str(PINS), "--no-deps", "--disable-pip"),
        *("--progress-spinner", "off", "--timeout", str(NETWORK_S), "--vulnerability-service", service),
        *("--format", "json"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return verdict(done.stdout, done.stderr, service)


def verdict(out: str, errors: str, service: str) -> tuple[int, list[str]]:
    """What pip-audit's output means: exit code, and lines for people."""
    try:
        found = json.loads(out)["dependencies"]
    except (ValueError, KeyError, TypeError):
        said = (errors.strip().splitlines() or ["it said nothing"])[-1]
        return NOT_ASKED, [f"audit: the vulnerability service {service} could not be asked ({said[:200]}); try later"]
    flawed = [f"{each['name']} {each['version']}: {_flaw(flaw)}" for each in found for flaw in each.get("vulns", ())]
    skipped = [each["name"] for each in found if "skip_reason" in each]
    if skipped or not found:
        line = (
            f"audit: {len(skipped)} of {len(found)} packages are not known to the vulnerability service {service}, "
            "so nothing is said of them; is it a mirror without such data? Try where the real one can be reached"
        )
        return (FLAWED if flawed else NOT_ASKED), [*flawed, line]
    if flawed:
        return FLAWED, flawed
    return CLEAN, [f"audit: {len(found)} packages, no flaw is known to {service}"]


def _flaw(flaw: dict[str, object]) -> str:
    mended = flaw.get("fix_versions")
    after = f"mended in {', '.join(map(str, mended))}" if isinstance(mended, list) and mended else "not mended yet"
    return f"{flaw['id']}, {after}"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Bill of materials and audit of what the image is made of.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("sbom").add_argument("out", type=Path)
    commands.add_parser("audit").add_argument("--service", choices=["pypi", "osv"], default="pypi")
    given = parser.parse_args()
    if given.command == "audit":
        code, lines = audit(given.service)
        print("\n".join(lines), file=sys.stdout if code == CLEAN else sys.stderr)
    elif (code := sbom(out := given.out.absolute())) == 0:
        print(f"{out}: {len(json.loads(out.read_text())['components'])} components, CycloneDX {SPEC}")
    return code


if __name__ == "__main__":
    sys.exit(main())
