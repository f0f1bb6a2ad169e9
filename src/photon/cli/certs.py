"""``photon certs``: creates a small certificate authority, and the certificates of a deployment's processes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import PATH, Deployed, Printed, deployed, formatted
from photon.config.errors import UsageError
from photon.fleet.parts import Column, Part, picked

if TYPE_CHECKING:
    from photon.config.certificates import Facts

DAYS = click.IntRange(min=1, max=36_500)


@click.command("issue")
@click.argument("directory", type=PATH)
@click.option("--name", "identity", metavar="IDENTITY",
              help="registry-REPLICA, eventstore-DATACENTRE, joiner-…, dispatcher-…, wan, …; or an authority's "
              "name, by default photon.")  # fmt: skip
@click.option("--authority", "new", is_flag=True, help="Create an authority in DIRECTORY, instead of a certificate.")
@click.option("--host", "hosts", multiple=True, metavar="HOST",
              help="Another DNS name or address to put into the certificate.")  # fmt: skip
@click.option("--ca", "authority", type=PATH, help="Directory of the authority (default: DIRECTORY).")
@click.option("--days", type=DAYS, help="Days until it expires (default: 365; 3650 for an authority).")
@click.option(
    "--force",
    is_flag=True,
    help="Replace an existing certificate, or an authority (which invalidates all its certificates).",
)
@formatted
def certs_issue(
    directory: Path, identity: str | None, new: bool, hosts: tuple[str, ...], authority: Path | None,
    days: int | None, force: bool, out: Printed,
) -> None:  # fmt: skip
    """Issue one certificate with its key into DIRECTORY. Adds ca.crt if it is not there.

    With --authority: create ca.crt, which every process needs, and ca.key, which only photon certs needs.

    \b
    Examples:
      photon certs issue ca/ --authority
      photon certs issue certs/ --name registry-r1
      photon certs issue alice/ --name operator-alice --ca ca/
    """
    from photon.config.certificate_files import begin, issue_into
    from photon.config.certificates import AUTHORITY_DAYS

    now = datetime.now(UTC)
    if new:
        if hosts or authority is not None:
            raise UsageError("--host and --ca cannot be combined with --authority")
        path = begin(directory, identity or "photon", now, days=days or AUTHORITY_DAYS, force=force)
        done = f"created; keep {path.with_suffix('.key')} where no service can read it"
    elif identity is None:
        raise UsageError("give the certificate's identity with --name, or create an authority with --authority")
    else:
        own = authority or directory
        path = issue_into(own, directory, identity, now, days=days or 365, hosts=hosts, force=force)
        done = "issued"
    out.show({"certificate": str(path), "key": str(path.with_suffix(".key"))}, f"{path}: {done}")


@click.command("for")
@deployed(file=True)
@click.option("--ca", "authority", type=PATH,
              help="Directory of the authority, created if missing (default: the directory in [tls]).")  # fmt: skip
@click.option("--days", type=DAYS, default=365, show_default=True, help="Days until the certificates expire.")
@click.option("--renew", is_flag=True, help="Also renew certificates that expire within 30 days.")
@click.option("--force", is_flag=True, help="Renew all certificates, but not the authority.")
@click.option("--each-in", "parent", type=PATH, metavar="DIR",
              help="Put each certificate into its own DIR/IDENTITY, for volumes; requires --ca.")  # fmt: skip
@click.option("--directories-only", is_flag=True, help="With --each-in: create only the directories.")
def certs_for(
    at: Deployed, authority: Path | None, days: int, renew: bool, force: bool, parent: Path | None,
    directories_only: bool,
) -> None:  # fmt: skip
    """Issue a deployment's missing certificates. They go into the directory of [tls].

    Safe to repeat: existing certificates of this authority are kept. A process uses a renewed certificate after a
    restart.

    \b
    Examples:
      photon certs for photon.toml
      photon certs for photon.toml --ca /safe/ca --renew
      photon certs for photon.toml --ca /safe/ca --each-in /certs
    """
    from photon.config.certificate_files import AUTHORITY, begin, issue_missing
    from photon.config.certificates import AUTHORITY_DAYS
    from photon.fleet.processes import identities

    settings = at.settings
    if settings.tls is None:
        raise UsageError(f'{at.config}: has no [tls]; add the table with directory = "certs"')
    directory, now = at.base / settings.tls.directory, datetime.now(UTC)
    places = {identity: directory if parent is None else parent / identity for identity in identities(settings)}
    if directories_only and parent is not None:
        for place in places.values():
            place.mkdir(parents=True, exist_ok=True)
        return
    if directories_only or (parent is not None and authority is None):
        raise UsageError("--each-in requires --ca or --directories-only; --directories-only requires --each-in")
    authority = authority or directory
    if not (authority / f"{AUTHORITY}.crt").exists():
        begin(authority, "photon", now, days=AUTHORITY_DAYS)
    done: dict[str, str] = {}
    for identity, place in places.items():
        done |= issue_missing(authority, place, [identity], now, days=days, renew=renew, force=force)
    people = "\n".join(f"{places[identity] / identity}.crt: {what}" for identity, what in done.items())
    at.show({"directory": str(parent or directory), "certificates": done}, people)


def certificates(at: Deployed, name: str | None = None) -> int:
    """``photon status certificates [NAME]``: shows a certificate, or all of a directory (default: the directory in
    [tls]). Raises UsageError. Exit code 3: one has expired or expires within 30 days."""
    from photon.config.certificate_files import show

    if name is not None:
        path = Path(name)
    elif at.settings.tls is not None:
        path = at.base / at.settings.tls.directory
    else:
        raise UsageError(f"{at.config}: has no [tls]; give a file or directory of certificates")
    now, found = datetime.now(UTC), show(path)
    rows = [_as_json(file, facts, now) for file, facts in found]
    at.part(Part("", rows, COLUMNS))
    return ATTENTION if any(facts.expires_soon(now) for _, facts in found) else DONE


def _as_json(file: Path, facts: Facts, now: datetime) -> dict[str, Any]:
    said = picked(facts, "identity authority names issuer serial begins ends")
    return {"file": str(file), **said, "days_left": (facts.ends - now).days}


def _expires(row: dict[str, Any]) -> str:
    left = row["days_left"]
    return f"{row['ends']:%Y-%m-%d}, " + (f"in {left} days" if left >= 0 else "EXPIRED")


COLUMNS = (
    Column("file", lambda row: Path(row["file"]).name),
    Column("identity", lambda row: row["identity"] or ("authority" if row["authority"] else "not of Photon")),
    Column("names", "names", ", ".join), Column("expires", _expires),
)  # fmt: skip
