"""Writes the hashes into deploy/docker/*requirements.txt. Run it after a version there was changed.

    python deploy/docker/pins.py

Asks pip which files it would install for CPython 3.11 on x86-64 and ARM, one set for each. A test checks the versions
against pyproject.toml. Standard library and pip only.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = "3.11"
MACHINES = ("x86_64", "aarch64")
PLATFORMS = ("manylinux2014", *(f"manylinux_2_{minor}" for minor in range(5, 37)))  # Bookworm's glibc is 2.36
SOURCES = "pysyncobj,pyspark"  # have no wheels
PIN = re.compile(r"^([A-Za-z0-9_.-]+==[^\s\\]+)", re.MULTILINE)


def hashes(pins: list[str], machine: str) -> list[str]:
    """The SHA-256 of each pin's file, in the order of ``pins``. Raises CalledProcessError."""
    platforms = [option for each in PLATFORMS for option in ("--platform", f"{each}_{machine}")]
    asked = [
        sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet",
        "--report", "-", "--target", "unused", "--python-version", PYTHON, *platforms,
        "--only-binary", ":all:", "--no-binary", SOURCES, *pins,
    ]  # fmt: skip
    found = json.loads(subprocess.run(asked, stdout=subprocess.PIPE, check=True).stdout)["install"]
    by_name = {_plain(each["metadata"]["name"]): each["download_info"]["archive_info"]["hashes"] for each in found}
    return [by_name[_plain(pin.partition("==")[0])]["sha256"] for pin in pins]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    for file in sorted(HERE.glob("*requirements.txt")):
        text = file.read_text()
        head = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
        pins = PIN.findall(text)
        both = zip(*(hashes(pins, machine) for machine in MACHINES), strict=True)
        for pin, found in zip(pins, both, strict=True):
            head += " \\\n    ".join([pin, *(f"--hash=sha256:{each}" for each in dict.fromkeys(found))]) + "\n"
        file.write_text(head)


if __name__ == "__main__":
    main()
