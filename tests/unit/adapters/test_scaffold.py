"""The package of ``photon adapter init``: refused names, and its contents."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from photon.adapters.contract import AdapterError
from photon.adapters.scaffold import make_package, package_files
from photon.config.loader import convert


@pytest.mark.parametrize(
    "name", ["", "9x", "a-b", "a.b", "../x", "a b", "größe", "_x", "class", "match", "json", "photon", "a" * 41]
)
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(AdapterError) as caught:
        package_files(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["acme_billing", "Ads", "x"])
def test_every_file_is_what_it_should_be(name: str) -> None:
    files = package_files(name)
    assert not [path for path, text in files.items() if "@" in text or "@" in path]
    for path, text in files.items():
        if path.endswith(".py"):
            ast.parse(text)
    project = tomllib.loads(files["pyproject.toml"])["project"]
    (target,) = project["entry-points"]["photon.adapters"].values()
    module, _, cls = target.partition(":")
    assert f"class {cls}(Adapter)" in files["src/" + module.replace(".", "/") + ".py"]
    assert convert(tomllib.loads(files["photon.toml"]), "photon.toml").join[name.lower()].adapter == name


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    made = make_package("mine", tmp_path / "new")
    (made / "README.md").write_text("mine")
    with pytest.raises(AdapterError, match="already exists"):
        make_package("mine", tmp_path / "new")
    assert (made / "README.md").read_text() == "mine"
    (tmp_path / "file").write_text("")
    with pytest.raises(AdapterError, match="cannot be written"):
        make_package("mine", tmp_path / "file")
