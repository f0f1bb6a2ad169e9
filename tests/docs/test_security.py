"""docs/security.md shows the table of rights and the identities as the code has them."""

from __future__ import annotations

from pathlib import Path

from photon.config.rights import RIGHTS, SERVERS
from photon.config.roles import Role

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
BEGIN, END = "| role | may call, besides its health |", "\n\n"


def rights_table() -> str:
    """A row for each role: services, their methods, and conditions."""
    rows = [BEGIN, "| --- | --- |"]
    for role in Role:
        services: dict[str, list[str]] = {}
        for method, roles in RIGHTS.items():
            _, service, name = method.split("/")
            if role in roles and not service.startswith("grpc."):
                condition = roles[role].said()
                services.setdefault(service.removeprefix("photon.v1."), []).append(
                    name if condition == "yes" else f"{name} ({condition})"
                )
        said = "; ".join(f"`{service}`: {', '.join(names)}" for service, names in services.items())
        rows.append(f"| `{role}` | {said or 'nothing'} |")
    return "\n".join(rows)


def test_the_page_shows_every_right() -> None:
    text = PAGE.read_text()
    assert BEGIN in text
    shown = text[text.index(BEGIN) :].split(END)[0]
    assert shown == rights_table(), f"docs/security.md must show:\n{rights_table()}"


def test_the_page_names_every_identity() -> None:
    text = PAGE.read_text()
    for role in Role:
        assert f"| `{role}" in text, role
    for role in SERVERS:
        [row] = [line for line in text.splitlines() if line.startswith((f"| `{role}-", f"| `{role}` | the proxy"))]
        assert "| yes" in row, role
