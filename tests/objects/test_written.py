"""What is written to a real store: output files and backups, through refusals and cut connections, published last."""

from __future__ import annotations

import errno
import gzip
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.lab.demo.check import records
from photon.objects.directory import bucket_of
from photon.objects.paths import ObjectPath
from photon.objects.transfer import fetched, told, uploaded
from photon.outputs import OutputPlace
from tests.integration.commands import photon, running, until
from tests.integration.join_logs import Logs
from tests.objects.server import Site
from tests.objects.test_join import WITHIN_S


def mirrored(site: Site) -> dict[str, bytes]:
    """The lines of each file that the manifest names; all of them are there."""
    manifest = [orjson.loads(line) for line in site.get("lake/manifest.jsonl").splitlines()]
    assert {"lake/manifest.jsonl", *(f"lake/{each['file']}" for each in manifest)} <= set(site.keys("lake/"))
    found = {each["file"]: site.get(f"lake/{each['file']}") for each in manifest}
    assert [len(data) for data in found.values()] == [each["bytes"] for each in manifest]
    lines = {name: gzip.decompress(data) for name, data in found.items()}
    assert [len(data) for data in lines.values()] == [each["uncompressed_bytes"] for each in manifest]
    return lines


def test_output_is_mirrored_once(site: Site, tmp_path: Path) -> None:
    """Half of the events, the rest, and once more: what is there is what was published."""
    logs = Logs(tmp_path, clicks=200)
    logs.write(0.5)
    assert logs.once("--keep-pending", "--max-rejected", "1000", "--set", "output.roll_size=8KiB").code == 0
    site.faults.refused = site.faults.cut = 0.1
    command = ("sink", "objects", logs.output, "--into", f"{site.url}/lake", "-o", "json")
    first = photon(*command)
    assert first.code == 0, first.err
    assert "object storage: " in first.err
    some = mirrored(site)
    assert some
    assert all(name.startswith("joined/") for name in some)
    logs.finish("--set", "output.roll_size=8KiB")
    assert photon(*command).code == 0
    there = b"".join(mirrored(site).values()).splitlines()
    written = {each["event_id"]: each for each in records(logs.output / "joined")}
    assert len(there) == len(written)
    assert {each["event_id"]: each for each in map(orjson.loads, there)} == written
    assert set(b"".join(some.values()).splitlines()) <= set(there)
    assert photon(*command).json == {"files": 0, "bytes": 0}
    lines = photon("read", f"{site.url}/lake")
    assert lines.code == 0, lines.err
    assert lines.out.encode().splitlines() == photon("read", logs.output).out.encode().splitlines()


def test_it_is_killed_and_the_store_is_away(site: Site, tmp_path: Path) -> None:
    """kill -9 in the middle, and a store that refuses everything: what the manifest names is there at each moment,
    and all of it in the end."""
    logs = Logs(tmp_path, clicks=400)
    command = ("sink", "objects", logs.output, "--into", f"{site.url}/lake")
    logs.write(0.4)
    assert logs.once("--keep-pending", "--max-rejected", "1000", "--set", "output.roll_size=4KiB").code == 0
    for requests in (1, 4, 9):
        site.faults.cut = 0.2
        with running(*command, log=tmp_path / "killed.log") as process:
            end = site.faults.seen.total() + requests
            until(
                lambda end=end: site.faults.seen.total() >= end or process.poll() is not None, WITHIN_S, "it writes"
            )
            process.kill()
        if "lake/manifest.jsonl" in site.keys("lake/"):
            mirrored(site)
    assert photon(*command).code == 0
    before = mirrored(site)
    logs.finish("--set", "output.roll_size=4KiB")
    site.faults.refused = 1.0
    away = photon(*command)
    assert away.code == 1
    assert "run this again" in away.err
    assert mirrored(site) == before
    site.faults.refused = site.faults.cut = 0.0
    assert photon(*command).code == 0
    there = b"".join(mirrored(site).values()).splitlines()
    written = {each["event_id"]: each for each in records(logs.output / "joined")}
    assert {each["event_id"]: each for each in map(orjson.loads, there)} == written
    assert len(there) == len(written)


def test_final_files_are_removed_by_the_list(site: Site, tmp_path: Path) -> None:
    """The join goes on without them, and the bucket has all."""
    logs = Logs(tmp_path, clicks=400)
    roll = ("--set", "output.roll_size=4KiB")
    joined = logs.output / "joined"

    def finals() -> set[Path]:
        if not joined.exists():
            return set()
        slots = OutputPlace.of_join(logs.output).published(RealDisk(), ("joined",))
        return {logs.output / file.path for slot in slots for file in slot.files if file.final}

    with logs.following("--max-rejected", "1000", *roll) as following:
        for number, share in enumerate((0.15, 0.3, 0.45, 0.6), 1):
            logs.write(share)
            until(lambda: len(finals()) >= number, WITHIN_S, "a file is final")  # noqa: B023
        assert following.interrupt().code == 0
    final = finals()
    assert len(final) > 3
    command = ("sink", "objects", logs.output, "--into", f"{site.url}/lake")
    assert photon(*command, "--removable").out == ""
    assert photon(*command).code == 0
    listed = {Path(line) for line in photon(*command, "--removable").out.splitlines()}
    assert listed == final - {max(final)}
    for path in listed:
        path.unlink()
    logs.write()
    assert logs.once("--max-rejected", "1000", *roll).code == 0
    assert photon(*command).code == 0
    read = [orjson.loads(line)["event_id"] for line in b"".join(mirrored(site).values()).splitlines()]
    assert len(read) == len(set(read)) == len(logs.truth.joined)


def test_not_a_url(tmp_path: Path) -> None:
    result = photon("sink", "objects", tmp_path, "--into", tmp_path)
    assert result.code == 2
    assert "is not the URL of an object store" in result.err


def test_what_is_cut_short_is_not_there(site: Site, tmp_path: Path) -> None:
    """A directory as objects: without the file that comes last nothing counts."""
    site.faults.refused = site.faults.cut = 0.1
    site.faults.forgets = 2
    to = ObjectPath(f"{site.url}/backup")
    content = bytes(9 << 20) + b"end"
    with uploaded(to, "manifest.json") as local:
        (local / "group-00000").mkdir(parents=True)
        (local / "group-00000" / "snapshot").write_bytes(content)
        (local / "manifest.json").write_bytes(b"{}")
    assert not site.faults.forgets

    def torn() -> Iterator[bytes]:
        yield content
        raise OSError(errno.EIO, "Input/output error", "/local/file")

    with pytest.raises(OSError, match="'/local/file'"), told(to):
        bucket_of(to).objects.write(f"{to.key}/torn", torn())
    assert site.keys("backup/") == ["backup/group-00000/snapshot", "backup/manifest.json"]
    with fetched(to, "manifest.json") as back:
        assert (back / "group-00000" / "snapshot").read_bytes() == content
    with pytest.raises(UsageError, match="already exists"), uploaded(to, "manifest.json"):
        pass
    bucket_of(to).objects.delete("backup/manifest.json")
    with pytest.raises(UsageError, match="has no manifest"), fetched(to, "manifest.json"):
        pass
