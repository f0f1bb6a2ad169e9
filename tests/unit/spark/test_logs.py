"""Raw logs that a job reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.logs import slices
from photon.spark.logs import LogNotRead, list_logs
from photon.spark.sources import LogSource
from tests.spark.small_deployment import FOREIGN, PRIMARY

ADAPTER = ConfiguredAdapter({"primary": PRIMARY, "foreign": FOREIGN, "where": "join.clicks"})


def test_a_log_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(b'{"query_id": "%s"}\n' % name.encode())
    source = LogSource(datacentre="west", directory=str(tmp_path))
    assert len(list_logs(ADAPTER, [source], pytest.fail, is_foreign=True)) == 2
    opened = slices.open_source

    def open_source(path: Path) -> object:
        if path.name == "b.log":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path)

    monkeypatch.setattr(slices, "open_source", open_source)
    with pytest.raises(
        LogNotRead, match=rf"^west: {tmp_path}/b\.log: cannot be read \(Permission denied\); make it "
    ):
        list_logs(ADAPTER, [source], print, is_foreign=True)
