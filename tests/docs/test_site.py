"""The site is built without a warning, and holds what it generates."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OUTSIDE = re.compile(r"""<(?:script|link|img|iframe)[^>]+(?:src|href)=["']?https?://""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(directory)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return directory


def test_every_page_is_reachable(site: Path) -> None:
    nav = (ROOT / "mkdocs.yml").read_text()
    missing = [
        str(path.relative_to(ROOT / "docs"))
        for path in sorted((ROOT / "docs").rglob("*.md"))
        if f"{path.relative_to(ROOT / 'docs')}\n" not in nav
    ]
    assert missing == [], "mkdocs.yml does not have them in its nav"


def test_the_reference_is_made_from_the_code(site: Path) -> None:
    commands = (site / "reference" / "cli.html").read_text()
    assert "photon registry reshard" in commands
    assert "only show the schedule" in " ".join(commands.lower().split())  # an option's help
    services = (site / "reference" / "grpc.html").read_text()
    assert "photon.v1.Joiner" in services
    assert "A batch of foreign events as columns; each event gets an outcome of its own." in services
    assert "class" in (site / "reference" / "python.html").read_text()
    assert "photon.adapters.contract" in (site / "reference" / "python.html").read_text()


def test_no_link_leads_out_of_the_site(site: Path) -> None:
    """Such as one to a file that lies next to the code."""
    lost = [
        f"{page.relative_to(site)}: {target}"
        for page in site.rglob("*.html")
        if page.name != "404.html"
        for target in re.findall(r'href="([^"#?:]+)["#?]', page.read_text())
        if not (page.parent / target).exists()
    ]
    assert lost == []


def test_it_needs_nothing_from_outside(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    found = {str(page.relative_to(site)): OUTSIDE.findall(page.read_text()) for page in pages}
    assert {name: each for name, each in found.items() if each} == {}
