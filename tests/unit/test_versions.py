"""Every format that is a struct refuses a different or missing version in one line; nothing decodes it without that
check."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

import photon
from photon.config.disk import RealDisk
from photon.config.versioned_file import decoded, read_versioned
from photon.idregistry.raft import codec

Kind = type[msgspec.Struct]


@pytest.fixture(scope="module")
def modules() -> list[ModuleType]:
    """All modules of the product."""
    names = [each.name for each in pkgutil.walk_packages(photon.__path__, "photon.")]
    return [importlib.import_module(each) for each in names if not each.endswith("__main__")]


def versioned(module: ModuleType) -> Iterator[tuple[str, Kind]]:
    """Names in the module of structs whose tag is a version. Raft's messages use tags to tell them apart."""
    for name, value in vars(module).items():
        struct = isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ != codec.__name__
        if struct and isinstance(value.__struct_config__.tag, int):
            yield name, value


class Damaged(Exception):
    pass


def test_another_version_and_none_are_refused_in_one_line(modules: list[ModuleType], tmp_path: Path) -> None:
    kinds = {kind for module in modules for _, kind in versioned(module)}
    assert len(kinds) > 40
    for kind in kinds:
        told = kind.__struct_config__
        known = told.tag
        for other in (known + 1, known - 1):
            content = [other, "x"] if told.array_like else {told.tag_field: other, "added": 1}
            assert why(kind, content, tmp_path / "file") == f"version {other}, this release reads version {known}"
        missing = why(kind, [] if told.array_like else {"added": 1}, tmp_path / "file")
        assert "\n" not in missing
        assert told.array_like or f"`{told.tag_field}`" in missing


def why(kind: Kind, content: Any, path: Path) -> str:
    """The reader's reason for refusing the content; the path is named with it."""
    if kind.__struct_config__.array_like:  # a message or a cell
        with pytest.raises(msgspec.ValidationError) as refused:
            decoded(msgspec.msgpack.encode(content), kind, msgspec.msgpack.decode)
        return str(refused.value)
    path.write_bytes(msgspec.json.encode(content))
    with pytest.raises(Damaged) as caught:
        read_versioned(RealDisk(), path, kind, Damaged)
    assert caught.value.args[0] == path
    return str(caught.value.args[1])


def test_versions_are_checked_wherever_a_format_is_decoded(modules: list[ModuleType]) -> None:
    """``msgspec``'s own decoders would say "invalid value" without either version."""
    past = [
        f"{module.__name__}: {ast.unparse(call)}"
        for module in modules
        if (kinds := {name for name, _ in versioned(module)})
        for call in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith((".decode", ".convert", "Decoder"))
        for used in (*call.args, *(each.value for each in call.keywords))
        if isinstance(used, ast.Name) and used.id in kinds
    ]
    assert past == []
