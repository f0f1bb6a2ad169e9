"""Pages of the site that are generated from the code: commands, settings, metrics, gRPC services.

Hooks of mkdocs. All text has a single source: a command's help, a comment of a proto file or of a setting.
"""

from __future__ import annotations

import ast
import functools
import inspect
import io
import json
import re
import tempfile
import tokenize
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import click
import griffe
import msgspec
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from grpc_tools import protoc
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from photon.adapters.side import SideConfig
from photon.cli.main import main, walk
from photon.config.metrics.table import as_markdown
from photon.config.settings import Duration, Size, tables

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("adapters", "config", "dispatcher", "eventstore", "idregistry", "joiner", "src/photon")
COMMANDS = """\
# Commands

Every command has `--help`; these are their texts. Exit codes: 0 done, 1 failed, 2 wrong usage or configuration,
3 finished but something needs attention.
"""
SERVICES = """\
# gRPC services

The calls between processes, from the proto files. [Security](../security.md) lists who may call them.
"""
METRICS = """\
# Metrics

Every metric with its labels and meaning. [Watching](../watching.md#metrics) tells how to read them.

"""
PYTHON = """\
# Python API

The modules that other programs may import. Their names follow semantic versioning; all else may
change in any release.

"""
PUBLIC = {
    "photon.library.front": "`photon.join` and `photon.read` ([In another program](../embedding.md))",
    "photon.library.records": "Their results: records, tables",
    "photon.library": "Run joins and deployments, read outputs ([In another program](../embedding.md))",
    "photon.tables": "Tables kept up to date by transactions and observers ([Tables](../tables.md))",
    "photon.adapters.contract": "The adapter contract ([Adapters](../adapters.md))",
    "photon.eventid": "Event ids for servers that write events ([Event ids](../eventid.md))",
}

_submodules = griffe.ModuleFinder.submodules


def _needed(finder: griffe.ModuleFinder, module: griffe.Module) -> list[tuple[tuple[str, ...], Path]]:
    """The modules of the rooms on the Python page, and of those they import: parsing all of Photon would take twice
    as long as the rest of the site."""
    return [each for each in _submodules(finder, module) if module.path != "photon" or each[0][0] in _rooms_needed()]


@functools.cache
def _rooms_needed() -> set[str]:
    paths = [ROOT / "src" / Path(*name.split(".")) for name in PUBLIC]
    texts = [(path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text() for path in paths]
    return {name.split(".")[1] for name in PUBLIC} | set(re.findall(r"from photon\.(\w+)", "".join(texts)))


def on_startup(**_: object) -> None:
    griffe.ModuleFinder.submodules = _needed  # type: ignore[method-assign]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages."""
    pages = {
        "reference/cli.md": cli_page(),
        "reference/grpc.md": grpc_page(),
        "reference/python.md": python_page(),
        "reference/metrics.md": METRICS + as_markdown(),
        "project/contributing.md": _from_root("CONTRIBUTING.md"),
        "project/changelog.md": _from_root("CHANGELOG.md"),
        "project/adapter-examples.md": examples_page(),
        "project/bench.md": (ROOT / "bench" / "README.md").read_text().replace("](../docs/", "](../"),
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Shows untested blocks (``sh show``) like the others, links texts next to the code to their pages here, and puts
    the tables of settings in their places."""
    markdown = re.sub(r"<!-- keys of (.+) -->", lambda found: keys_table(found[1]), markdown)
    markdown = markdown.replace("](../adapters/examples/README.md)", "](project/adapter-examples.md)")
    markdown = markdown.replace("](../bench/README.md", "](project/bench.md")
    return re.sub(r"^(\s*)```sh show$", r"\1```sh", markdown, flags=re.MULTILINE)


def examples_page() -> str:
    """The worked examples of adapters: description, configuration and code of each."""
    parts = ["# Worked examples\n\nThey are in `adapters/examples/` of a clone, each with sample logs.\n"]
    for folder in sorted(path.parent for path in (ROOT / "adapters" / "examples").glob("*/README.md")):
        parts.append(re.sub(r"^#", "##", (folder / "README.md").read_text(), flags=re.MULTILINE))
        for file in sorted([*folder.glob("*.toml"), *folder.glob("*.py")]):
            kind = "toml" if file.suffix == ".toml" else "python"
            parts.append(f"`{folder.name}/{file.name}`:\n\n```{kind}\n{file.read_text()}```\n")
    return "\n".join(parts)


# -- settings ----------------------------------------------------------------------------------------------------
def keys_table(name: str) -> str:
    """The keys of a table of the deployment file, with default and meaning. Raises KeyError for a key without a
    comment."""
    place = {"the file": "", "join.NAME.primary": None}.get(name, name)
    struct = SideConfig if place is None else tables()[place]
    meanings = comments(struct)
    rows = ["| key | default | meaning |", "| --- | --- | --- |"]
    for field in msgspec.structs.fields(struct):
        if place == "" and any(each.partition(".")[0] == field.name for each in tables()):
            continue  # has a table of its own
        rows.append(f"| `{field.name}` | {_default(field)} | {meanings[field.name]} |")
    return "\n".join(rows)


def comments(struct: type[msgspec.Struct]) -> dict[str, str]:
    """By field: the comment above or behind it, as Markdown."""
    path = Path(inspect.getsourcefile(struct) or "")
    source = path.read_text()
    found = {
        token.start[0]: (token.string.lstrip("# "), token.line.lstrip().startswith("#"))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    [body] = [
        each.body
        for each in ast.parse(source).body
        if isinstance(each, ast.ClassDef) and each.name == struct.__name__
    ]
    texts = {}
    for line in body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            first = line.lineno
            while found.get(first - 1, ("", False))[1]:
                first -= 1
            lines = [found[each][0] for each in (*range(first, line.lineno), line.end_lineno or 0) if each in found]
            if lines:
                text = " ".join(lines).replace("``", "`").removesuffix(".").replace("|", "\\|")
                texts[line.target.id] = re.sub(r"docs/(([\w/-]+\.md)(#[\w-]+)?)", r"[\2](\1)", text)
    return texts


def _default(field: Any) -> str:
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, Duration | Size):
        return f"`{_with_unit(value)}`"
    return "none" if value in (None, "") else f"`{json.dumps(value)}`".replace('`"', "`").replace('"`', "`")


def _with_unit(value: Duration | Size) -> str:
    units = (
        {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
        if isinstance(value, Size)
        else {"h": 3600, "min": 60, "s": 1}
    )
    for unit, one in units.items():
        if value >= one and value % one == 0:
            return f"{value // one:.0f}{unit}"
    return "0s" if value == 0 else f"{value * 1000:g}ms"


def _from_root(name: str) -> str:
    """Converts a text of the repository's root: its links into docs/ lead one folder up here."""
    return re.sub(r"\]\(docs/", "](../", (ROOT / name).read_text())


# -- commands ----------------------------------------------------------------------------------------------------
def commands() -> Iterator[tuple[str, click.Command]]:
    """(``photon status registry``, its command), groups included, in the order of the help; no hidden ones."""
    hidden: list[tuple[str, ...]] = []
    for path, command in walk(main):
        if command.hidden:
            hidden.append(path)
        if not any(path[: len(each)] == each for each in hidden):
            yield " ".join(path), command


def cli_page() -> str:
    """Every command with its help, word for word."""
    parts = [COMMANDS]
    for name, command in commands():
        level = "##" if name.count(" ") < 2 else "###"
        shown = command.get_help(click.Context(command, info_name=name, max_content_width=100))
        parts.append(f"{level} {name}\n\n```text\n{shown}\n```\n")
    return "\n".join(parts)


# -- gRPC --------------------------------------------------------------------------------------------------------
def grpc_page() -> str:
    """Every service and message with the comments of its proto file."""
    parts = [SERVICES]
    for path, file in descriptors():
        parts.append(f"## {path}\n")
        comments = {
            tuple(at.path): " ".join(part.strip() for part in (at.leading_comments, at.trailing_comments) if part)
            for at in file.source_code_info.location
        }
        parts += [f"{comments[(12,)]}\n"] if comments.get((12,)) else []
        for number, service in enumerate(file.service):
            parts.append(f"### {file.package}.{service.name}\n\n{comments.get((6, number), '')}\n")
            for at, method in enumerate(service.method):
                stream = ("stream " if method.client_streaming else "", "stream " if method.server_streaming else "")
                ends = [kind.rpartition(".")[2] for kind in (method.input_type, method.output_type)]
                said = " ".join(comments.get((6, number, 2, at), "").split())
                parts.append(f"- `{method.name}({stream[0]}{ends[0]}) → {stream[1]}{ends[1]}` {said}")
            parts.append("")
        for number, message in enumerate(file.message_type):
            parts += _message(message, (4, number), comments)
    return "\n".join(parts)


def _message(message: DescriptorProto, at: tuple[int, ...], comments: dict[tuple[int, ...], str]) -> Iterator[str]:
    yield f"#### {message.name}\n\n{comments.get(at, '')}\n"
    if message.field:
        yield "| field | type | |\n| --- | --- | --- |"
        for number, field in enumerate(message.field):
            said = " ".join(comments.get((*at, 2, number), "").split()).replace("|", "\\|")
            yield f"| `{field.name}` = {field.number} | {_kind(field)} | {said} |"
        yield ""
    for number, inner in enumerate(message.nested_type):
        yield from _message(inner, (*at, 3, number), comments)


def _kind(field: FieldDescriptorProto) -> str:
    repeated = "repeated " if field.label == FieldDescriptorProto.LABEL_REPEATED else ""
    if field.type_name:
        return repeated + field.type_name.rpartition(".")[2]
    return repeated + FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def descriptors() -> Iterator[tuple[str, FileDescriptorProto]]:
    """(path below the root, its descriptor with comments) of every proto file of the project. Raises RuntimeError."""
    paths = sorted({path.resolve() for room in ROOMS for path in (ROOT / room).rglob("*.proto")})
    include = str(resources.files("grpc_tools") / "_proto")
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "all.bin"
        said = protoc.main(["protoc", f"-I{ROOT / 'src'}", f"-I{include}", f"-I{ROOT}", "--include_source_info",
                            f"--descriptor_set_out={out}", *(str(_named(path)) for path in paths)])  # fmt: skip
        if said != 0:
            raise RuntimeError(f"protoc ended with {said}")
        found = FileDescriptorSet.FromString(out.read_bytes())
    by_name = {file.name: file for file in found.file}
    for path in paths:
        name = str(_named(path).relative_to(ROOT / "src"))
        yield str(path.relative_to(ROOT)), by_name[name]


def _named(path: Path) -> Path:
    """The path by which a proto file is imported: ``src/photon/ROOM/…``."""
    inner = path.relative_to(ROOT)
    return ROOT / inner if inner.parts[0] == "src" else ROOT / "src" / "photon" / inner


# -- Python ------------------------------------------------------------------------------------------------------
def python_page() -> str:
    """The modules that other programs may import; mkdocstrings fills them in."""
    parts = [f"## {module}\n\n{said}\n\n::: {module}\n" for module, said in PUBLIC.items()]
    return PYTHON + "\n".join(parts)
