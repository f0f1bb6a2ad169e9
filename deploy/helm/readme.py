"""Writes deploy/helm/photon/README.md from values.schema.json and values.yaml.

python deploy/helm/readme.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parent / "photon"
HEAD = """\
# Photon's chart

Runs a deployment file on Kubernetes: `photon up FILE --helm values.yaml` makes the values `deployment` of it. See
[docs/kubernetes.md](../../../docs/kubernetes.md). This file is made by `deploy/helm/readme.py`.

| value | default | meaning |
| --- | --- | --- |
"""


def rows(schema: dict[str, Any], values: Any, path: str = "") -> Iterator[str]:
    """Rows of all values that have a description."""
    for name, each in schema.get("properties", {}).items():
        value = values.get(name) if isinstance(values, dict) else None
        if "description" in each:
            default = "" if value is None else f"`{json.dumps(value)}`"
            choice = f" One of {', '.join(f'`{one}`' for one in each['enum'])}." if "enum" in each else ""
            yield f"| `{path}{name}` | {default} | {each['description']}{choice} |\n"
        else:
            yield from rows(each, value, f"{path}{name}.")


def as_markdown() -> str:
    schema = json.loads((CHART / "values.schema.json").read_text())
    return HEAD + "".join(rows(schema, yaml.safe_load((CHART / "values.yaml").read_text())))


if __name__ == "__main__":
    (CHART / "README.md").write_text(as_markdown())
