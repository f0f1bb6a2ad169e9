"""What a release is made of: built the same to the byte by whoever builds it, and signed by whoever released it.

    python deploy/artifacts.py dist [DIRECTORY]             sdist and wheel of the last commit, into dist
    python deploy/artifacts.py key FILE                     a new private key in FILE, and its public one in FILE.pub
    python deploy/artifacts.py sign DIRECTORY --key FILE    photon.intoto.jsonl: what was made of what, built again to
                                                            see that it is true, and signed
    python deploy/artifacts.py verify DIRECTORY             are all files there what was released? [--key PUBLIC]

``dist`` builds from an export of the commit, so that nothing of the working tree gets in, with the commit's time and
the pinned tools of deploy/docker/build-requirements.txt; the wheel is built from the sdist. The statement is
in-toto's (SLSA provenance 1) in a DSSE envelope, signed with Ed25519; it says no time and no machine, so the same
commit, tools and key give the same bytes. Exit code 1: something is not as it was released; 2: it could not be done.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
import zlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / "deploy" / "docker" / "build-requirements.txt"
INGREDIENTS = ROOT / "deploy" / "docker" / "requirements.txt"
PUBLIC_NAME = "deploy/release.pub"
STATEMENT, BILL = "photon.intoto.jsonl", "photon.cdx.json"
STATEMENT_BYTES_MAX = 1 << 20
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE, PREDICATE_TYPE = "https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1"
BUILD_TYPE, BUILDER = "urn:photon-join:make-dist:1", "urn:photon-join:builder:maintainer"
GOOD, CHANGED, UNDONE = 0, 1, 2


class Undone(Exception):
    """It could not be done: what, and what to do."""


class Changed(Exception):
    """Something is not what was released: what."""


# -- building --------------------------------------------------------------------------------------------------------
def git(*arguments: str, root: Path = ROOT) -> str:
    """What it prints. Raises Undone."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[0]
        raise Undone(f"git {arguments[0]}: {said}; run this in a clone")
    return done.stdout.strip()


def tools() -> dict[str, str]:
    """Name and version of what builds. Raises Undone: another version is installed than is pinned."""
    lines = (line.strip() for line in TOOLS.read_text().splitlines())
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    for name, wanted in pinned.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            found = "none"
        if found != wanted:
            raise Undone(f"{name} {wanted} is pinned, {found} is here: pip install -r {TOOLS.relative_to(ROOT)}")
    return pinned


def build(out: Path, root: Path = ROOT) -> list[Path]:
    """Sdist and wheel of the last commit of ``root``, in ``out``. Raises Undone."""
    tools()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="photon-dist-") as scratch:
        source, archive = Path(scratch, "source"), Path(scratch, "source.tar")
        git("archive", "--format=tar", "-o", str(archive), "HEAD", root=root)
        _unpack(archive, source)
        environment = {**os.environ, "SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct", root=root)}
        sdist = _hatchling("sdist", source, Path(scratch, "sdist"), environment)
        _unpack(sdist, Path(scratch, "unpacked"))
        [unpacked] = Path(scratch, "unpacked").iterdir()
        wheel = _hatchling("wheel", unpacked, Path(scratch, "wheel"), environment)
        return [_placed(made, out / made.name) for made in (sdist, wheel)]


def _placed(made: Path, out: Path) -> Path:
    """Replaced as a whole: a build that was broken off leaves no half file under a release's name."""
    part = out.with_name(f".{out.name}.part")
    part.write_bytes(made.read_bytes())
    return part.replace(out)


def _unpack(archive: Path, place: Path) -> None:
    with tarfile.open(archive) as opened:
        opened.extraction_filter = getattr(tarfile, "data_filter", None)  # since 3.11.4
        opened.extractall(place)


def _hatchling(target: str, source: Path, out: Path, environment: dict[str, str]) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise Undone(f"{target}: hatchling: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
    [made] = out.iterdir()
    return made


def digest(path: Path) -> str:
    """SHA-256, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# -- the statement ---------------------------------------------------------------------------------------------------
def statement(directory: Path, commit: str, epoch: str) -> dict[str, Any]:
    """What all files in ``directory`` are, and what they were made of: ``commit`` of the time ``epoch`` (Unix s)."""
    python = {"python": platform.python_version(), "zlib": zlib.ZLIB_RUNTIME_VERSION}
    materials = [
        {"name": "source", "uri": f"git:{commit}", "digest": {"gitCommit": commit}},
        {"name": str(INGREDIENTS.relative_to(ROOT)), "digest": {"sha256": digest(INGREDIENTS)}},
        *({"name": name, "uri": f"pkg:pypi/{name}@{pinned}"} for name, pinned in sorted(tools().items())),
    ]
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": each.name, "digest": {"sha256": digest(each)}} for each in artifacts(directory)],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"commit": commit},
                "internalParameters": {"SOURCE_DATE_EPOCH": epoch, **python},
                "resolvedDependencies": materials,
            },
            "runDetails": {"builder": {"id": BUILDER}},
        },
    }


def artifacts(directory: Path) -> list[Path]:
    """The files that a statement is about. Raises Undone: there is none."""
    found = sorted(each for each in directory.glob("*") if each.is_file() and each.name != STATEMENT)
    if not found:
        raise Undone(f"{directory}: holds no file; make dist")
    return found


def signed_bytes(payload: bytes) -> bytes:
    """What is signed for it: DSSE's pre-authentication encoding."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def envelope(said: dict[str, Any], key: Ed25519PrivateKey) -> str:
    """One line of JSON."""
    payload = json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
    signature = {"keyid": key_id(key.public_key()), "sig": _base64(key.sign(signed_bytes(payload)))}
    made = {"payloadType": PAYLOAD_TYPE, "payload": _base64(payload), "signatures": [signature]}
    return json.dumps(made, separators=(",", ":")) + "\n"


def opened(line: bytes, key: Ed25519PublicKey) -> dict[str, Any]:
    """The statement in an envelope. Raises Changed: not signed with ``key``, or nothing that this release knows."""
    try:
        made = json.loads(line)
        kind, payload = made["payloadType"], base64.b64decode(made["payload"], validate=True)
        signatures = [base64.b64decode(each["sig"], validate=True) for each in made["signatures"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Changed(f"{STATEMENT}: is no signed statement") from None
    if kind != PAYLOAD_TYPE or not any(_is_signed(key, each, payload) for each in signatures):
        raise Changed(f"{STATEMENT}: is not signed with the key {key_id(key)[:16]}…, or was changed after that")
    said = json.loads(payload)  # signed, so it is what ``envelope`` wrote
    if (said.get("_type"), said.get("predicateType")) != (STATEMENT_TYPE, PREDICATE_TYPE):
        raise Changed(f"{STATEMENT}: is a {said.get('predicateType')}, not {PREDICATE_TYPE}")
    return dict(said)


def _is_signed(key: Ed25519PublicKey, signature: bytes, payload: bytes) -> bool:
    try:
        key.verify(signature, signed_bytes(payload))
    except InvalidSignature:
        return False
    return True


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# -- keys ------------------------------------------------------------------------------------------------------------
def key_id(key: Ed25519PublicKey) -> str:
    """SHA-256 of the public key (SubjectPublicKeyInfo, DER), in hexadecimal."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def new_key(path: Path) -> str:
    """Makes it with mode 0600, and ``path``.pub; its id. Raises Undone: there is one."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    try:
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(private)
        with open(f"{path}.pub", "xb") as file:
            file.write(public)
    except OSError as error:
        raise Undone(f"{error.filename}: {error.strerror}; a key is never replaced") from None
    return key_id(key.public_key())


def private_key(path: Path) -> Ed25519PrivateKey:
    """Raises Undone."""
    try:
        if path.stat().st_mode & 0o077:
            raise Undone(f"{path}: others can read this private key: chmod 600 {path}")
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise Undone(f"{path}: {error.strerror}; make one with: deploy/artifacts.py key {path}") from None
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise Undone(f"{path}: is no private Ed25519 key without a passphrase (PEM, PKCS #8)")
    return key


def public_key(path: Path) -> Ed25519PublicKey:
    """Raises Undone."""
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise Undone(f"{path}: {error.strerror}; name the public key of the releases with --key") from None
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise Undone(f"{path}: is no public Ed25519 key (PEM)")
    return key


# -- commands --------------------------------------------------------------------------------------------------------
def check_made(directory: Path, root: Path) -> None:
    """Raises Undone: what is there is not made of the last commit, as a statement would say."""
    found = {each.name: digest(each) for each in artifacts(directory) if each.name != BILL}
    if git("status", "--porcelain", root=root):
        raise Undone("what is not committed is in no release: commit it, then make dist sbom")
    with tempfile.TemporaryDirectory(prefix="photon-again-") as again:
        made = {each.name: digest(each) for each in build(Path(again), root)}
    if wrong := sorted({name for name, _ in found.items() ^ made.items()}):
        raise Undone(f"{directory / wrong[0]}: is not what the last commit gives; empty {directory}, make dist sbom")


def sign(directory: Path, key: Ed25519PrivateKey, root: Path = ROOT) -> Path:
    """Writes the statement. Raises Undone."""
    check_made(directory, root)
    commit, epoch = git("log", "-1", "--format=%H %ct", root=root).split()
    out = directory / STATEMENT
    out.write_text(envelope(statement(directory, commit, epoch), key))
    return out


def verify(directory: Path, key: Ed25519PublicKey) -> dict[str, Any]:
    """The statement, if all files there are those that it names; some may be missing. Raises Changed, Undone."""
    try:
        with open(directory / STATEMENT, "rb") as file:
            line = file.read(STATEMENT_BYTES_MAX)
    except OSError as error:
        raise Undone(f"{error.filename}: {error.strerror}; it stands next to each release's files") from None
    said = opened(line, key)
    named = {each["name"]: each["digest"]["sha256"] for each in said["subject"]}
    for each in artifacts(directory):
        if each.name not in named:
            raise Changed(f"{each.name}: the release has no such file")
        if digest(each) != named[each.name]:
            raise Changed(f"{each.name}: was changed: its SHA-256 is not the one that was signed")
    return said


def run(given: argparse.Namespace) -> None:
    """A command, and what it says. Raises Changed, Undone."""
    if given.command == "dist":
        for made in build(given.directory):
            print(f"{digest(made)}  {made}")
        if git("status", "--porcelain"):
            print("dist: of the last commit; what is not committed is not in it", file=sys.stderr)
    elif given.command == "key":
        print(f"{given.file}.pub: key {new_key(given.file)}")
    elif given.command == "sign":
        print(sign(given.directory, private_key(given.key)))
    else:
        key = public_key(given.key)
        commit = verify(given.directory, key)["predicate"]["buildDefinition"]["externalParameters"]["commit"]
        for each in artifacts(given.directory):
            print(f"{each.name}: as released, of commit {commit[:12]}")
        print(f"signed with the key {key_id(key)}")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Builds, signs and verifies what a release is made of.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("dist").add_argument("directory", type=Path, nargs="?", default=ROOT / "dist")
    commands.add_parser("key").add_argument("file", type=Path)
    for name, key in (("sign", None), ("verify", ROOT / PUBLIC_NAME)):
        command = commands.add_parser(name)
        command.add_argument("directory", type=Path)
        command.add_argument("--key", type=Path, default=key, required=key is None)
    try:
        run(parser.parse_args())
    except (Changed, Undone, OSError) as wrong:
        print(f"artifacts: {wrong}", file=sys.stderr)
        return CHANGED if isinstance(wrong, Changed) else UNDONE
    return GOOD


if __name__ == "__main__":
    sys.exit(main())
