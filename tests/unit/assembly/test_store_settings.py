"""The deployment file's settings of a join's event store reach it."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.assembly.eventstore import eventstore_config
from photon.config.errors import PhotonError
from photon.config.loader import load
from photon.eventstore.file_map import MapKind

FILE = """
[join.clicks]
primary = { format = "jsonl", key = "id" }
foreign = { format = "jsonl", key = "id", id = "c", time = { field = "t", unit = "s" } }
"""


def test_windows_and_missing_logs(tmp_path: Path) -> None:
    file = tmp_path / "photon.toml"
    file.write_text(FILE + 'file_map = "sparse"\n')
    config = eventstore_config(load(file, environment={}), "clicks", tmp_path, tmp_path)
    assert (config.kind, config.window_micros, config.window_bytes) == (MapKind.SPARSE, 10_000_000, 1 << 20)
    assert not config.forget_missing
    flags = (
        "join.clicks.file_map_window=250ms",
        "join.clicks.file_map_bytes=64KiB",
        "join.clicks.missing_logs=forget",
    )
    config = eventstore_config(load(file, environment={}, flags=flags), "clicks", tmp_path, tmp_path)
    assert (config.window_micros, config.window_bytes, config.forget_missing) == (250_000, 1 << 16, True)


@pytest.mark.parametrize(
    ("flag", "said"),
    [("join.clicks.file_map_bytes=0", "must be more than 0"), ("join.clicks.missing_logs=drop", "missing_logs")],
)
def test_what_cannot_be_is_refused(tmp_path: Path, flag: str, said: str) -> None:
    file = tmp_path / "photon.toml"
    file.write_text(FILE)
    with pytest.raises(PhotonError, match=said):
        load(file, environment={}, flags=(flag,))
