"""The README's first block, pasted into a shell. What `make venv` installs is here already."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.fences import ROOT

BLOCK = re.compile(r"^```sh\n(git clone .*?)^```$", re.MULTILINE | re.DOTALL)
MAKE = """#!/bin/sh
[ "$*" = venv ] && ln -s {prefix} .venv
"""


def block() -> str:
    (found,) = BLOCK.findall((ROOT / "README.md").read_text())
    return str(found)


def test_the_first_screen_works_when_it_is_pasted(tmp_path: Path) -> None:
    origin, bin_ = tmp_path / "origin", tmp_path / "bin"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q", origin], check=True)
    for name in ("README.md", "Makefile"):
        (origin / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run([*git, "add", "-A"], cwd=origin, check=True)
    subprocess.run([*git, "commit", "-q", "-m", "Begin"], cwd=origin, check=True)
    bin_.mkdir()
    (bin_ / "make").write_text(MAKE.format(prefix=sys.prefix))
    (bin_ / "make").chmod(0o755)
    path = f"{bin_}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "REPOSITORY": str(origin), "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        ["bash", "-e", "-c", block()], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    counters, *pairs = re.split(r"\n(?=\{)", done.stdout.rstrip())
    assert f"\n{counters}\n```" in (ROOT / "README.md").read_text()
    joined = [(pair["event_id"], pair["primary"]["words"]) for pair in map(json.loads, pairs)]
    assert joined == [("7a31d0", "piano"), ("e5f802", "red shoes"), ("03c96b", "piano")]
    shown = (ROOT / "README.md").read_text()
    told = [line for line in done.stderr.splitlines() if line.startswith("photon: ")]
    for line in ("event id = ", "event time = ", "key = "):
        (said,) = [each for each in told if each.startswith(f"photon: {line}")]
        (there,) = [each for each in shown.splitlines() if each.startswith(f"photon: {line}")]
        assert said.startswith(there.removesuffix(" ..."))


def test_the_targets_that_the_readme_names_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for name in set(re.findall(r"\bmake ([a-z-]+)", (ROOT / "README.md").read_text())):
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), name
