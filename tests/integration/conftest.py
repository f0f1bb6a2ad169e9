"""How these tests are spread over test processes (``--dist loadgroup``).

Those of a file that share a deployment stay together, all others go wherever there is room; the longest begin first,
so that none of them is left for the end.
"""

from __future__ import annotations

import pytest

LONG = (
    "test_chaos",
    "test_reshard",
    "test_datacentres",
    "test_verifier_service",
    "test_kill9_services",
    "test_wheel",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LONG)
    for item in items:
        fixtures = item._fixtureinfo.name2fixturedefs.values()  # type: ignore[attr-defined]
        if any(each.scope == "module" for one in fixtures for each in one):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
