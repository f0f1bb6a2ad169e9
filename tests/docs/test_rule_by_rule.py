"""The table "Rule by rule" names every ablation of the joiner's protocol, and none that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.simulation.copies.ablations import ABLATIONS as OF_COPIES
from tests.simulation.datacentres.ablations import ABLATIONS as OF_DATACENTRES
from tests.simulation.joiner.ablations import ABLATIONS as OF_THE_JOINER
from tests.simulation.registry.test_registry import ABLATIONS as OF_THE_REGISTRY
from tests.simulation.resharding.ablations import ABLATIONS as OF_RESHARDING

DOCUMENT = Path(__file__).parents[2] / "docs" / "exactly-once.md"


def named_ablations() -> dict[int, set[str]]:
    """By rule: what the table says is taken out."""
    text = DOCUMENT.read_text()
    section = text[text.index("## Rule by rule") :]
    rows = re.findall(r"^\| (\d+) [^|]*\|[^|]*\|([^|]*)\|", section[: section.index("\n## ")], re.MULTILINE)
    return {int(rule): set(re.findall(r"`([^`]+)`", taken_out)) for rule, taken_out in rows}


def test_every_rule_has_its_row() -> None:
    assert sorted(named_ablations()) == list(range(1, 17))


def test_each_ablation_named_exists() -> None:
    known = OF_DATACENTRES.keys() | OF_THE_REGISTRY.keys() | OF_RESHARDING.keys()
    by_rule = OF_THE_JOINER.keys() | OF_COPIES.keys()
    for rule, names in named_ablations().items():
        missing = {name for name in names - known if f"rule {rule}: {name}" not in by_rule}
        assert missing == set(), f"rule {rule}"


def test_each_ablation_of_the_joiner_and_of_copies_is_named() -> None:
    named = {f"rule {rule}: {name}" for rule, names in named_ablations().items() for name in names}
    assert (OF_THE_JOINER.keys() | OF_COPIES.keys()) - named == set()
