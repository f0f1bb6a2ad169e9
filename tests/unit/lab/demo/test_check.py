"""Reading outputs that still change."""

import gzip
from pathlib import Path

from photon.lab.latency import _from


def test_a_file_that_is_compressed_while_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "a-000001.jsonl.gz").write_bytes(gzip.compress(b'{"event_id":"e1"}\n'))
    assert _from(tmp_path, "a-000001.jsonl", 0) == b'{"event_id":"e1"}\n'
