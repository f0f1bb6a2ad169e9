"""The package made by ``photon adapter init``: a working adapter to change, not an empty skeleton."""

from __future__ import annotations

import keyword
import re
import sys
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from photon.adapters.contract import API_VERSION, AdapterError

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
_SUFFIX = ".txt"  # suffix of the template's files, so that tools do not take them for our code


def check_name(name: str) -> None:
    """Refuses an invalid package name. Raises AdapterError."""
    why = ""
    if not NAME.fullmatch(name):
        why = "is not a Python identifier of at most 40 ASCII characters that begins with a letter"
    elif keyword.iskeyword(name) or keyword.issoftkeyword(name):
        why = "is a Python keyword"
    elif name in sys.stdlib_module_names or name == "photon":
        why = "is the name of an existing package"
    if why:
        raise AdapterError(f"{name!r} {why}", "name", "choose one such as acme_billing")


def package_files(name: str) -> dict[str, str]:
    """Returns the text of each file, by its path in the package. Raises AdapterError for an invalid name."""
    check_name(name)
    words = {
        "@NAME@": name,
        "@DASHED@": name.lower().replace("_", "-").strip("-"),
        "@JOIN@": name.lower(),
        "@CLASS@": "".join(part[:1].upper() + part[1:] for part in name.split("_")),
        "@API@": str(API_VERSION),
    }
    found: dict[str, str] = {}
    _collect(files(__package__) / "template", "", found)
    out = {}
    for path, text in found.items():
        for word, value in words.items():
            text = text.replace(word, value)
        out[path.replace("src/", f"src/{name}/").removesuffix(_SUFFIX)] = text
    return out


def make_package(name: str, parent: Path) -> Path:
    """Writes the package into ``parent``/``name``. Raises AdapterError if that exists or cannot be created."""
    texts = package_files(name)
    folder = parent / name
    try:
        folder.mkdir(parents=True)
        for path, text in texts.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except FileExistsError:
        raise AdapterError("already exists", str(folder), "choose another name or directory") from None
    except OSError as error:
        raise AdapterError(f"cannot be written ({error.strerror})", str(folder), "choose another directory") from None
    return folder


def _collect(at: Traversable, place: str, found: dict[str, str]) -> None:
    for each in sorted(at.iterdir(), key=lambda entry: entry.name):
        if each.is_dir():
            _collect(each, f"{place}{each.name}/", found)
        elif each.name.endswith(_SUFFIX):
            found[place + each.name] = each.read_text(encoding="utf-8")
