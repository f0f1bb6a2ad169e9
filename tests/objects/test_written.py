"""What is written to a real store: output files and backups, through refusals and cut connections, published last."""

from __future__ import annotations

import gzip
from pathlib import Path

import orjson
import pytest

from photon.config.errors import UsageError
from photon.objects.directory import bucket_of
from photon.objects.paths import ObjectPath
from photon.objects.transfer import fetched, uploaded
from tests.integration.commands import photon
from tests.integration.join_logs import Logs
from tests.objects.server import Site


def test_final_files_are_mirrored_once(site: Site, tmp_path: Path) -> None:
    logs = Logs(tmp_path, clicks=200)
    assert logs.finish("--set", "output.roll_size=4KiB")["joined"]
    into = f"{site.url}/lake"
    site.faults.refused = site.faults.cut = 0.1
    first = photon("sink", "objects", logs.output, "--into", into, "-o", "json")
    assert first.code == 0, first.err
    assert "object storage: " in first.err
    kept = sorted((logs.output / "joined").glob("*.gz"))
    assert len(kept) > 3
    assert first.json == {"files": len(kept), "bytes": sum(path.stat().st_size for path in kept)}
    for path in kept:
        assert site.get(f"lake/joined/{path.name}") == path.read_bytes()
    manifest = [orjson.loads(line) for line in site.get("lake/manifest.jsonl").splitlines()]
    assert [each["file"] for each in manifest] == [f"joined/{path.name}" for path in kept]
    assert [each["uncompressed_bytes"] for each in manifest] == [len(gzip.decompress(p.read_bytes())) for p in kept]
    again = photon("sink", "objects", logs.output, "--into", into, "-o", "json")
    assert again.json == {"files": 0, "bytes": 0}


def test_not_a_url(tmp_path: Path) -> None:
    result = photon("sink", "objects", tmp_path, "--into", tmp_path)
    assert result.code == 2
    assert "is no URL of an object store" in result.err


def test_what_is_cut_short_is_not_there(site: Site, tmp_path: Path) -> None:
    """A directory as objects: without the file that comes last nothing counts."""
    site.faults.refused = site.faults.cut = 0.1
    to = ObjectPath(f"{site.url}/backup")
    content = bytes(9 << 20) + b"end"
    with uploaded(to, "manifest.json") as local:
        (local / "group-00000").mkdir(parents=True)
        (local / "group-00000" / "snapshot").write_bytes(content)
        (local / "manifest.json").write_bytes(b"{}")
    assert site.keys("backup/") == ["backup/group-00000/snapshot", "backup/manifest.json"]
    with fetched(to, "manifest.json") as back:
        assert (back / "group-00000" / "snapshot").read_bytes() == content
    with pytest.raises(UsageError, match="exists already"), uploaded(to, "manifest.json"):
        pass
    bucket_of(to).objects.delete("backup/manifest.json")
    with pytest.raises(UsageError, match="has no manifest"), fetched(to, "manifest.json"):
        pass
