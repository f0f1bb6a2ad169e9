"""`make dist` packs exactly the package's files that git knows."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "photon"


def _tracked() -> set[str]:
    links = {link.name: link.resolve() for link in PACKAGE.iterdir() if link.is_symlink()}
    listed = subprocess.run(
        ["git", "ls-files", PACKAGE, *links.values()], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    files = {name.removeprefix("src/photon/") for name in listed.splitlines()}
    return {f"photon/{name}" for name in files - set(links)}


def test_the_wheel_holds_what_git_knows(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path]  # the wheel from the sdist
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
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
