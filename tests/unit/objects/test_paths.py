from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from photon.config.errors import UsageError
from photon.objects.paths import ObjectPath, placed

BASE = Path("/etc/photon")


def test_a_url_is_a_path_that_no_file_call_takes() -> None:
    path = placed(BASE, "s3://logs/queries/")
    assert isinstance(path, ObjectPath)
    assert str(path) == "s3://logs/queries"
    assert (path.bucket, path.key) == ("s3://logs", "queries")
    assert str(path / "h0/a.gz") == "s3://logs/queries/h0/a.gz"
    assert (path / "a.gz").parent == path
    assert path.absolute() == path.resolve() == pickle.loads(pickle.dumps(path)) == path
    assert path.is_dir()
    with pytest.raises(TypeError, match="is not a file on this machine"):
        path.open()


@pytest.mark.parametrize(
    ("text", "is_at"),
    [("logs", "/etc/photon/logs"), ("/var/log", "/var/log"), ("file:///var/log", "/var/log"), ("a:b/c", "a:b/c")],
)
def test_what_is_on_this_machine(text: str, is_at: str) -> None:
    assert placed(BASE, text) == BASE / is_at
    assert not isinstance(placed(BASE, text), ObjectPath)


@pytest.mark.parametrize("text", ["s3://logs", "s3:/logs", Path("s3://logs")])
def test_a_url_that_went_through_a_path(text: str | Path) -> None:
    assert str(placed(BASE, text)) == "s3://logs"


def test_another_kind_is_refused() -> None:
    with pytest.raises(UsageError, match=r"ftp://h/p: .* there are s3://, gs://, file://"):
        placed(BASE, "ftp://h/p")
