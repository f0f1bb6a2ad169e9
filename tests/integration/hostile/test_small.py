"""Output that people recompress while it is read; an HBase that is away when Photon starts."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
from pathlib import Path

from photon.cli.errors import DONE
from photon.lab.demo.deployment import DemoDeployment, Shape
from photon.outputs.content import COMPRESSED_CHUNK_BYTES
from tests.integration.commands import photon
from tests.unit.outputs.helpers import WrittenSlot


def test_a_final_file_is_compressed_again_while_it_is_read(tmp_path: Path) -> None:
    """``photon read`` is within it: the same output, written in several members and shorter."""
    slot = WrittenSlot(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".photon").symlink_to(tmp_path / "state")
    draw = random.Random(1)
    data = b"".join(b'{"event_id":"%d","x":"%b"}\n' % (n, draw.randbytes(400).hex().encode()) for n in range(5000))
    slot.append(1, data)
    slot.roll(1)
    slot.finish(1)
    final = tmp_path / "out/joined/s0-000001.jsonl.gz"
    assert final.stat().st_size > 4 * COMPRESSED_CHUNK_BYTES
    command = [sys.executable, "-m", "photon", "read", str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        begun = reading.stdout.read(100)  # more than fits into the pipe is yet to come
        final.with_suffix(".new").write_bytes(gzip.compress(data[:9]) + gzip.compress(data[9:], 1))
        final.with_suffix(".new").rename(final)
        rest = reading.stdout.read()
        said = reading.stderr.read().decode()
    assert (reading.returncode, said) == (DONE, "")
    assert begun + rest == data


def test_photon_up_waits_for_an_hbase_that_is_away(tmp_path: Path) -> None:
    """``tests/hbase/test_up.py`` has one that comes, goes and returns."""
    DemoDeployment(tmp_path, Shape(("east",), joiners=1, round_trip_s=None, shards=1, replicas={"r1": "east"}))
    file = tmp_path / "photon.toml"
    file.write_text(file.read_text() + '[datacentre.east.hbase]\nthrift = "127.0.0.1:1"\n')
    try:
        up = photon("up", file, "--detach", timeout=120.0)
        assert (up.code, up.err) == (DONE, "")
    finally:
        photon("down", file)
