"""A slot's directory, copied while a joiner works and restored later: refused; the newest one continues exactly."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.integration.commands import until
from tests.integration.join_logs import Logs

OUTPUTS = ("joined", "filtered", "unmatched", "rejected")


def shown(logs: Logs) -> int:
    """Bytes of growing files that readers may rely on."""
    path = logs.output / ".photon/slots/local-1/durable.json"
    return sum(json.loads(path.read_bytes())["files"].values()) if path.exists() else 0


def copy(logs: Logs, to: Path) -> None:
    """Slot and output, file by file, as a backup copies them. The registry is elsewhere in a deployment: it stays."""

    def copied() -> bool:
        if to.exists():
            shutil.rmtree(to)
        try:
            for name in (".photon/slots", *OUTPUTS):
                if (logs.output / name).exists():
                    shutil.copytree(logs.output / name, to / name)
        except (shutil.Error, FileNotFoundError):  # a file that was replaced or removed meanwhile
            return False
        return True

    until(copied, 30, "the copy is whole")


def put_back(logs: Logs, copied: Path) -> None:
    for name in (".photon/slots", *OUTPUTS):
        if (logs.output / name).exists():
            shutil.rmtree(logs.output / name)
        if (copied / name).exists():
            shutil.copytree(copied / name, logs.output / name)


def grown(logs: Logs, beyond: int) -> Callable[[], bool]:
    return lambda: shown(logs) > beyond


def test_an_older_copy_of_the_slot_is_refused(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.write(0.4)
    with logs.following("--max-rejected", "1000") as process:
        until(grown(logs, 0), 30, "the first records are shown")
        copy(logs, tmp_path / "older")
        then = shown(logs)
        logs.write(0.8)
        until(grown(logs, then), 30, "further records are shown")
        process.kill()
    copy(logs, tmp_path / "newest")
    put_back(logs, tmp_path / "older")
    for _ in range(2):  # a refused start changes nothing
        refused = logs.once("--max-rejected", "1000")
        assert refused.code == 2
        assert len(refused.err.splitlines()) == 1, refused.err
        assert "this directory is an older copy of slot local-1" in refused.err
        assert "Restore the newest" in refused.err
    put_back(logs, tmp_path / "newest")
    logs.finish()
