"""Computes the same answers in another process, with another hash seed, time zone, language and directory.

Run as ``python -m photon.adapters.testkit.other_process``; reads JSON from standard input and writes it to standard
output.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from photon.adapters.bounds import bounded_again
from photon.adapters.contract import Adapter, LogFile
from photon.adapters.faults import MODULE_PREFIX
from photon.adapters.loader import load_adapter
from photon.adapters.shaping import shaped_adapter
from photon.adapters.testkit.answers import Answers, answers
from photon.adapters.testkit.samples import Sample, Samples

TIMEOUT_S = 120.0
SEEDS = ("1", "2718")


class _Record(msgspec.Struct, frozen=True):
    record: bytes
    path: str
    header: bytes
    line: int


class _Task(msgspec.Struct, frozen=True):
    """The other process's task. ``module`` and ``name`` give the class; ``file``: the path of a one-file adapter."""

    module: str
    name: str
    file: str
    options: dict[str, Any]
    shape: dict[str, Any] | None
    within: dict[str, int] | None
    primary: list[_Record]
    foreign: list[_Record]


class NotThere(Exception):
    """The other process could not create the adapter, or died. ``str()`` says why in a line."""


def answers_elsewhere(adapter: Adapter, samples: Samples, *, strange: bool = True) -> Answers:
    """Returns the ``answers`` of an adapter made from the same class and options. Raises NotThere.

    ``strange``: also in another time zone, language and working directory, not only with another hash seed.
    """
    cls = type(adapter)
    module = sys.modules.get(cls.__module__)
    file = str(Path(getattr(module, "__file__", None) or "").resolve())
    try:
        options = msgspec.to_builtins(_absolute(adapter.options))
        shape = None if adapter.shape is None else _absolute(adapter.shape)
        sides = map(_records, (samples.primary, samples.foreign))
        within = None if adapter.within is None else dict(adapter.within)
        task = msgspec.json.encode(_Task(cls.__module__, cls.__qualname__, file, options, shape, within, *sides))
    except TypeError as error:
        raise NotThere(f"its options are not plain values ({error}), so another process cannot create it") from None
    return _asked(task, strange)


def _asked(task: bytes, strange: bool) -> Answers:
    seed = next(each for each in SEEDS if each != os.environ.get("PYTHONHASHSEED"))
    zone = "Asia/Kathmandu" if os.environ.get("TZ") != "Asia/Kathmandu" else "America/St_Johns"
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path)
    other = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
    if strange:
        other |= {"TZ": zone, "LC_ALL": "C"}
    with tempfile.TemporaryDirectory() as directory:
        try:
            done = subprocess.run(
                [sys.executable, "-m", "photon.adapters.testkit.other_process"],
                input=task, cwd=directory if strange else None, env=other, capture_output=True, timeout=TIMEOUT_S,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise NotThere(f"it did not answer within {TIMEOUT_S:g} s") from None
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise NotThere(" ".join(last) or f"it exited with status {done.returncode}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Answers)


def _records(samples: Any) -> list[_Record]:
    return [_Record(each.record, each.file.path, each.file.header, each.line) for each in samples]


def _absolute(options: Mapping[str, Any]) -> dict[str, Any]:
    """Makes ``base``, the directory of relative paths, absolute: the other process has another working directory."""
    if "base" not in options:
        return dict(options)
    return {**options, "base": str(Path(str(options["base"])).resolve())}


def made_again(
    cls: type[Adapter], options: dict[str, Any], shape: Mapping[str, Any] | None, within: Mapping[str, int] | None
) -> Adapter:
    """Creates an adapter of this class, with the given shape and bounds."""
    return _as_told(cls(options), shape, within)


def _as_told(adapter: Adapter, shape: Mapping[str, Any] | None, within: Mapping[str, int] | None) -> Adapter:
    adapter = bounded_again(adapter, within)
    if shape is None or adapter.shape is not None:  # it already has its shape
        return adapter
    return shaped_adapter(adapter, shape["table"], shape["where"], Path(shape["base"]))


def _made(task: _Task) -> Adapter:
    if not task.module.startswith(MODULE_PREFIX):
        try:
            cls: Any = importlib.import_module(task.module)
            for part in task.name.split("."):
                cls = getattr(cls, part)
            return made_again(cls, task.options, task.shape, task.within)
        except (ImportError, AttributeError):
            if not Path(task.file).is_file():
                raise
    loaded = load_adapter(f"{task.file}:{task.name}", task.options, Path(task.options.get("base", ".")))
    return _as_told(loaded, task.shape, task.within)


def main() -> None:
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=_Task)
    primary, foreign = (
        [Sample(each.record, LogFile(each.path, each.header), each.line) for each in side]
        for side in (task.primary, task.foreign)
    )
    out = sys.stdout
    sys.stdout = sys.stderr  # an adapter may print
    given = answers(_made(task), Samples(primary, foreign))
    out.write("\n" + msgspec.json.encode(given).decode() + "\n")
    out.flush()
    os._exit(0)  # a thread left behind by an adapter must not keep the process alive


if __name__ == "__main__":
    main()
