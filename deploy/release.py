"""The checklist of a release: each step in its turn, up to the first that fails, and what to do about it.

    python deploy/release.py check VERSION --key FILE [--waive STEP=REASON]... [-o json]
    python deploy/release.py formats           the table of durable formats, as docs/releasing.md has it

Nothing is pushed and nothing is tagged: it ends by printing the command that does. ``dist`` then holds what is to be
published. Exit code 1: a step failed; 2: it was called wrongly. docs/releasing.md says what a step is for.
"""

from __future__ import annotations

import argparse
import ast
import json
import lzma
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import artifacts
import supply_chain

ROOT = artifacts.ROOT
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
BREAKING = re.compile(r"\b(breaking|incompatible|removed|renamed|(?:is|are) gone)\b", re.IGNORECASE)
GATE = Path("build", "gate-passed")
BASELINES = Path("tests", "integration", "upgrade", "baselines")
PAGE = Path("docs", "releasing.md")
FORMATS = "| written by | magic | version |"
ROOMS = ("adapters", "config", "dispatcher", "eventstore", "idregistry", "joiner", "spark", "src", "tables")
FOREIGN = {"_ONE_VERSION"}  # a number of HBase's
WAIVABLE = ("changes", "gate", "audit")
DEMO = ("demo", "--seconds", "5", "--rate", "20", "--no-kill", "-o", "json")
STEP_S = 1800


class Failed(Exception):
    """A step failed: what is wrong, what to do."""

    def __init__(self, what: str, todo: str) -> None:
        super().__init__(what)
        self.todo = todo


@dataclass(frozen=True)
class Release:
    version: str
    key: Path
    root: Path = ROOT
    waived: Mapping[str, str] = field(default_factory=dict)
    """Step -> why it need not hold."""

    @property
    def dist(self) -> Path:
        return self.root / "dist"

    def git(self, *arguments: str) -> str:
        return artifacts.git(*arguments, root=self.root)


# -- versions --------------------------------------------------------------------------------------------------------
Numbers = tuple[int, int, int]


def numbers(version: str) -> Numbers | None:
    """None: it is no version of the form 1.2.3."""
    found = VERSION.fullmatch(version)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def last_release(tags: Sequence[str]) -> Numbers | None:
    """The highest version among tags such as v1.2.3."""
    return max(filter(None, (numbers(each[1:]) for each in tags if each.startswith("v"))), default=None)


def successors(last: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """The next major, minor and patch version."""
    major, minor, patch = last
    return (major + 1, 0, 0), (major, minor + 1, 0), (major, minor, patch + 1)


def text_of(version: Numbers) -> str:
    return ".".join(map(str, version))


def notes_of(changelog: str, version: str) -> list[tuple[int, str]] | None:
    """Line numbers and lines below the heading of ``version``; None: the first heading is another one's."""
    lines = list(enumerate(changelog.splitlines(), 1))
    headings = [at for at, (_, line) in enumerate(lines) if line.startswith("## ")]
    if not headings or lines[headings[0]][1] != f"## {version}":
        return None
    return lines[headings[0] + 1 : headings[1] if len(headings) > 1 else None]


def least(last: Numbers, notes: Sequence[tuple[int, str]], formats_changed: bool) -> tuple[Numbers, str]:
    """The least version that these changes allow, and why. Before 1.0.0 a minor version may break what was."""
    major, minor, patch = successors(last)
    for number, line in notes:
        if found := BREAKING.search(line):
            return (major if last[0] else minor), f"CHANGELOG.md:{number} says {found[0]!r}"
    return (minor, "a durable format has changed") if formats_changed else (patch, "nothing is broken")


# -- durable formats -------------------------------------------------------------------------------------------------
def formats(root: Path) -> list[str]:
    """Rows of the table: each module that writes a versioned format, its magic, its version."""
    rows = []
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            name = path.relative_to(root)
            if path.name.endswith("_pb2.py"):
                continue
            found = _constants(path.read_text())
            magics = [f"`{each.strip()}`" for each in found.values() if isinstance(each, str)]
            versions = {name: each for name, each in found.items() if isinstance(each, int)}
            if versions or magics:
                plain = [str(each) if len(versions) == 1 else f"{each} (`{name}`)" for name, each in versions.items()]
                rows.append(f"| `{name}` | {', '.join(magics)} | {', '.join(plain)} |")
    return sorted(rows)


def _constants(source: str) -> dict[str, int | str]:
    """Those of a module that say a version (a number) or a magic (a text)."""
    if not re.search("VERSION|MAGIC|FORMAT", source):
        return {}
    found: dict[str, int | str] = {}
    for name, value in _assigned(ast.parse(source)):
        if name in FOREIGN:
            continue
        if re.fullmatch(r"_?(\w+_)?(VERSION|FORMAT)", name) and isinstance(value, int | bytes):
            found[name] = value if isinstance(value, int) else int(value)
        elif name.endswith("MAGIC") and isinstance(value, str | bytes):
            found[name] = value if isinstance(value, str) else value.decode("ascii", "backslashreplace")
    return found


def _assigned(module: ast.Module) -> Iterator[tuple[str, object]]:
    """The module's constants: ``NAME = 1``, and ``NAME, OTHER = "text", 1``."""
    for node in module.body:
        if not isinstance(node, ast.Assign):
            continue
        target, value = node.targets[0], node.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=False))
        for each, given in pairs:
            if isinstance(each, ast.Name) and isinstance(given, ast.Constant):
                yield each.id, given.value


def formats_shown(page: str) -> list[str]:
    """Rows of the table in the page; none: it has no such table."""
    return page.partition(f"{FORMATS}\n")[2].partition("\n\n")[0].splitlines()[1:]


# -- steps -----------------------------------------------------------------------------------------------------------
def check_tree(release: Release) -> str:
    """All is committed."""
    if changed := release.git("status", "--porcelain").splitlines():
        raise Failed(f"{len(changed)} files are not as committed, {changed[0].split()[-1]} first", "commit them")
    return f"commit {release.git('rev-parse', '--short=12', 'HEAD')}"


def check_version(release: Release) -> str:
    """It follows the last one, and package and changelog say it."""
    wanted = numbers(release.version)
    if wanted is None:
        raise Failed(f"{release.version!r} is no version", "give one of the form 1.2.3")
    said = re.search(r'^__version__ = "(.*)"$', (release.root / "src/photon/__init__.py").read_text(), re.MULTILINE)
    if said is None or said[1] != release.version:
        raise Failed(
            f"src/photon/__init__.py says {said and said[1]}", f'set __version__ = "{release.version}", and commit'
        )
    if notes_of((release.root / "CHANGELOG.md").read_text(), release.version) is None:
        raise Failed("the first heading of CHANGELOG.md is another one", f"begin it with ## {release.version}")
    last = last_release(release.git("tag", "--list", "v*").splitlines())
    if last is not None and wanted not in successors(last):
        allowed = " or ".join(map(text_of, successors(last)))
        raise Failed(f"{release.version} does not follow {text_of(last)}", f"name {allowed}")
    headings = re.findall("^## (.*)$", (release.root / "CHANGELOG.md").read_text(), re.MULTILINE)
    before = max(filter(None, map(numbers, headings[1:])), default=None)
    if before is not None and (last is None or last < before):
        raise Failed(f"CHANGELOG.md names {text_of(before)}, and no tag does", "git fetch --tags")
    return "the first one" if last is None else f"follows {text_of(last)}"


def check_changes(release: Release) -> str:
    """The version is as large a step as the changes are."""
    last, wanted = last_release(release.git("tag", "--list", "v*").splitlines()), numbers(release.version)
    if last is None or wanted is None:
        return "there is none before it"
    before = formats_shown(release.git("show", f"v{text_of(last)}:{PAGE}"))
    notes = notes_of((release.root / "CHANGELOG.md").read_text(), release.version) or []
    lowest, why = least(last, notes, before != formats(release.root))
    if wanted < lowest:
        raise Failed(f"{why}: {text_of(lowest)} is the least", "name that; where the words mean no such thing, waive")
    return why


def check_formats(release: Release) -> str:
    """The page shows all durable formats."""
    found = formats(release.root)
    if found != formats_shown((release.root / PAGE).read_text()):
        raise Failed(
            f"{PAGE} shows other formats than the code has", "put in what `deploy/release.py formats` prints"
        )
    return f"{len(found)} modules, as in {PAGE}"


def check_baseline(release: Release) -> str:
    """Data of this release is kept, so that the next one is tested on it."""
    path = release.root / BASELINES / f"{release.version}.tar.xz"
    todo = "make baseline, and commit it"
    if not path.exists():
        raise Failed(f"{path.relative_to(release.root)} is missing", todo)
    try:
        with tarfile.open(path) as archive:
            member = archive.extractfile("formats.json")
            kept = json.load(member) if member else None
    except (tarfile.TarError, lzma.LZMAError, EOFError, KeyError, ValueError) as error:
        raise Failed(f"{path.name} cannot be read: {error}", todo) from None
    if kept != formats(release.root):
        raise Failed(f"{path.name} was made before a format changed", todo)
    return path.name


def check_gate(release: Release) -> str:
    """It passed on this very commit; it is run where it did not."""
    head, record = release.git("rev-parse", "HEAD"), release.root / GATE

    def noted() -> bool:
        return record.exists() and record.read_text().strip() == head

    if not noted():
        log = release.root / "build" / "gate.log"
        log.parent.mkdir(exist_ok=True)
        print(f"running the gate, an hour; see {log}", file=sys.stderr)
        with open(log, "wb") as file:
            code = subprocess.run(["make", "gate"], cwd=release.root, stdout=file, stderr=file).returncode
        if code:
            raise Failed("make gate failed", f"see {log}")
        if not noted():
            raise Failed(
                f"make gate passed, but on something else than {head[:12]}", "leave the clone alone meanwhile"
            )
    return f"passed on {head[:12]}"


def check_build(release: Release) -> str:
    """Two builds in two places are equal, and are all that ``dist`` holds."""
    release.dist.mkdir(exist_ok=True)
    for old in release.dist.iterdir():
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="photon-again-") as elsewhere:
        first = artifacts.build(release.dist, release.root)
        second = artifacts.build(Path(elsewhere, "dist"), release.root)
        for one, other in zip(first, second, strict=True):
            if artifacts.digest(one) != artifacts.digest(other):
                raise Failed(f"two builds of {one.name} differ", "compare them with diffoscope")
            if f"-{release.version}" not in one.name:
                raise Failed(f"{one.name} is of another version", "commit the version")
    return ", ".join(f"{each.name} {artifacts.digest(each)[:12]}" for each in first)


def check_sbom(release: Release) -> str:
    """The bill of materials lies next to them."""
    out = release.dist / artifacts.BILL
    if supply_chain.sbom(out):
        raise Failed("it could not be made", "make sbom says why")
    return out.name


def check_audit(release: Release) -> str:
    """No flaw is known in what the image is made of."""
    for service in ("pypi", "osv"):
        code, lines = supply_chain.audit(service)
        if code != supply_chain.NOT_ASKED:
            break
    if code != supply_chain.CLEAN:
        raise Failed(lines[0], "update the pins, or try where a service can be reached; else waive")
    return lines[0].removeprefix("audit: ")


def check_install(release: Release) -> str:
    """The wheel works in an environment that has nothing else."""
    [wheel] = release.dist.glob("*.whl")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PHOTON_"))}
    with tempfile.TemporaryDirectory(prefix="photon-installed-") as place:
        venv.create(place, with_pip=True)
        photon = Path(place, "bin", "photon")
        for command in (
            [Path(place, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", wheel],
            [photon, "--version"],
            [photon, *DEMO],
        ):
            done = subprocess.run(command, cwd=place, env=clean, capture_output=True, text=True, timeout=STEP_S)
            said = Path(command[0]).name + " " + str(command[1])
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
                raise Failed(f"{said}: exit code {done.returncode}: {last}", "the wheel lacks something: mend it")
            if command[1] == "--version" and release.version not in done.stdout:
                raise Failed(f"{said} says {done.stdout.strip()}", "commit the version")
    return "pip install, photon --version, photon demo"


def check_sign(release: Release) -> str:
    """The statement is signed with the key whose public half users have."""
    key, public = artifacts.private_key(release.key), artifacts.public_key(release.root / artifacts.PUBLIC_NAME)
    if artifacts.key_id(key.public_key()) != artifacts.key_id(public):
        raise Failed(f"{release.key} is not the key of {artifacts.PUBLIC_NAME}", "sign with that one")
    artifacts.sign(release.dist, key, release.root)
    artifacts.verify(release.dist, public)
    return f"signed with the key {artifacts.key_id(public)[:16]}"


STEPS: Mapping[str, Callable[[Release], str]] = {
    "tree": check_tree,
    "version": check_version,
    "changes": check_changes,
    "formats": check_formats,
    "baseline": check_baseline,
    "gate": check_gate,
    "build": check_build,
    "sbom": check_sbom,
    "audit": check_audit,
    "install": check_install,
    "sign": check_sign,
}


# -- the list --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Verdict:
    step: str
    verdict: str
    """ok, waived, failed, or open: not reached."""
    what: str = ""
    todo: str = ""
    seconds: float = 0.0


def walk(
    release: Release, steps: Mapping[str, Callable[[Release], str]] = STEPS, show: Callable[[Verdict], None] = print
) -> list[Verdict]:
    """Each step's verdict, shown at once; those behind the first that failed are open."""
    verdicts: list[Verdict] = []
    for name, step in steps.items():
        if any(each.verdict == "failed" for each in verdicts):
            verdict = Verdict(name, "open")
        elif name in release.waived:
            verdict = Verdict(name, "waived", release.waived[name])
        else:
            verdict = _verdict(name, step, release)
        verdicts.append(verdict)
        show(verdict)
    return verdicts


def _verdict(name: str, step: Callable[[Release], str], release: Release) -> Verdict:
    begun = time.monotonic()
    try:
        return Verdict(name, "ok", step(release), seconds=round(time.monotonic() - begun, 1))
    except Failed as failed:
        return Verdict(name, "failed", str(failed), failed.todo, round(time.monotonic() - begun, 1))
    except (artifacts.Undone, artifacts.Changed, OSError, subprocess.SubprocessError) as wrong:
        return Verdict(name, "failed", str(wrong), "mend that", round(time.monotonic() - begun, 1))


def line_of(verdict: Verdict) -> str:
    """For people."""
    todo = f"; {verdict.todo}" if verdict.todo else ""
    return f"{verdict.step:<10}{verdict.verdict:<8}{verdict.what}{todo}".rstrip()


def _waiver(text: str) -> tuple[str, str]:
    step, _, why = text.partition("=")
    if step not in WAIVABLE or not why:
        raise argparse.ArgumentTypeError(f"{text!r}: STEP=REASON, STEP one of {', '.join(WAIVABLE)}")
    return step, why


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="The checklist of a release; docs/releasing.md.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("formats")
    check = commands.add_parser("check", epilog="example: deploy/release.py check 0.2.0 --key ~/photon-release.key")
    check.add_argument("version")
    check.add_argument("--key", type=Path, required=True, help="the private key of the releases")
    check.add_argument("--waive", type=_waiver, action="append", default=[], metavar="STEP=REASON")
    check.add_argument("-o", dest="output", choices=["text", "json"], default="text")
    given = parser.parse_args()
    if given.command == "formats":
        print("\n".join((FORMATS, "| --- | --- | --- |", *formats(ROOT))))
        return 0
    as_json = given.output == "json"
    release = Release(given.version, given.key.expanduser().absolute(), waived=dict(given.waive))
    verdicts = walk(release, show=lambda each: None if as_json else print(line_of(each), flush=True))
    good = all(each.verdict in ("ok", "waived") for each in verdicts)
    tag = f"git tag -a v{given.version} -m 'Photon {given.version}' && git push origin v{given.version}"
    if as_json:
        print(json.dumps({"version": given.version, "good": good, "steps": [vars(each) for each in verdicts],
                          "tag": tag if good else None}, indent=2))  # fmt: skip
    elif good:
        print(f"\n{release.dist} holds what is to be published. To release it:\n  {tag}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
