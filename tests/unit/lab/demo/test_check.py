"""Reading outputs that still change."""

import gzip
from pathlib import Path

from photon.lab.demo.check import _content


def test_a_file_that_is_compressed_while_it_is_read(tmp_path: Path) -> None:
    final = tmp_path / "a-000001.jsonl.gz"
    final.write_bytes(gzip.compress(b'{"event_id":"e1"}\n'))
    assert _content(tmp_path / "a-000001.jsonl") == _content(final) == b'{"event_id":"e1"}\n'
