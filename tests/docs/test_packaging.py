"""The wheel, built through the sdist, holds exactly the package's files that git knows."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("adapters", "config", "dispatcher", "eventstore", "idregistry", "joiner", "spark", "tables")


def _tracked() -> set[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = set()
    for name in listed.splitlines():
        path = ROOT / name
        if name.startswith("src/photon/") and not path.is_symlink():
            files.add(name.removeprefix("src/"))
        elif name.split("/")[0] in FOLDERS:
            files.add(f"photon/{name}")
    return files


def test_the_wheel_holds_what_git_knows(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run([*build, "-t", "sdist"], cwd=ROOT, check=True, capture_output=True)
    [sdist] = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # since 3.11.4
        archive.extractall(tmp_path / "from-sdist")
    [unpacked] = (tmp_path / "from-sdist").iterdir()
    subprocess.run([*build, "-t", "wheel"], cwd=unpacked, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if name.startswith("photon/")}
    # Bytes that are not code yet to git do not count; everything that git knows must be there.
    assert _tracked() - inside == set()
    assert {name for name in inside if name.endswith(".pyc")} == set()


def test_the_version_is_the_package_s() -> None:
    from photon import __version__

    text = (ROOT / "src/photon/__init__.py").read_text()
    assert f'__version__ = "{__version__}"' in text
