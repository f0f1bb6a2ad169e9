"""Shell completion: a script for each shell, and bash completes with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.refusals import photon


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    said = photon("completion", shell)
    assert said.exit_code == 0
    assert "_PHOTON_COMPLETE" in said.output


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_and_options() -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = """
        eval "$(photon completion bash)"
        complete_it() {
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
            _photon_completion photon
            echo "${COMPREPLY[@]}"
        }
        complete_it photon registry res
        complete_it photon explain --ti
    """
    done = subprocess.run(
        ["bash", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    )
    first, second = done.stdout.splitlines()
    assert "reshard" in first.split()
    assert "restore" in first.split()
    assert second.split() == ["--timeout"]
