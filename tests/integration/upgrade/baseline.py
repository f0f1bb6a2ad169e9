"""Keeps data of this release, for the tests of those that follow: python -m tests.integration.upgrade.baseline"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import photon
from tests.integration.upgrade.site import BACKUP, Site, place

BASELINES = Path(__file__).parent / "baselines"
ROOT = Path(__file__).parents[3]
FORMATS = "formats.json"
BYTES_MAX = 200 << 10
LEFT_OUT = (".photon-run", ".photon-audit.jsonl", "r1.old", "r1.log")


def made(base: Path) -> Site:
    """The deployment has run, was restored from a backup, has run again, and ended while some clicks wait."""
    site = Site(base)
    site.make()
    with site.running():
        site.write(40, without=3)
        site.settle()
        site.run("registry", "backup", base / BACKUP)
    site.restore()
    with site.running():
        site.write(20, without=4)
        site.settle()
    site.check()
    return site


def pack(base: Path, out: Path) -> None:
    """Raises ValueError: it is too large."""
    shown = subprocess.run(
        [sys.executable, ROOT / "deploy" / "release.py", "formats"], capture_output=True, text=True, check=True
    )
    (base / FORMATS).write_text(json.dumps(shown.stdout.splitlines()[2:], indent=1))
    part = out.with_name(f"{out.name}.part")
    with tarfile.open(part, "w:xz", preset=9) as archive:
        for path in sorted(base.iterdir()):
            if path.name not in LEFT_OUT:
                archive.add(path, path.name, filter=_nobodys)
    if (size := part.stat().st_size) > BYTES_MAX:
        raise ValueError(f"{part}: has {size} bytes, more than {BYTES_MAX}")
    part.replace(out)


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if member.name.endswith(".sock") else member


@contextlib.contextmanager
def unpacked(archive: Path) -> Iterator[Site]:
    """The site as it was left."""
    with place() as base:
        with tarfile.open(archive) as opened:
            opened.extraction_filter = getattr(tarfile, "data_filter", None)  # since 3.11.4
            opened.extractall(base)
        yield Site(base)


if __name__ == "__main__":
    BASELINES.mkdir(exist_ok=True)
    kept = BASELINES / f"{photon.__version__}.tar.xz"
    with place() as empty:
        pack(made(empty).base, kept)
    print(f"{kept.relative_to(ROOT)}: {kept.stat().st_size} bytes")
