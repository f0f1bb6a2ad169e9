"""docs/metrics.md has the table of metrics as the code has it."""

from pathlib import Path

from photon.config.metrics.table import as_markdown


def test_the_documented_metrics_are_those_of_the_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    assert text.endswith(as_markdown()), "write docs/metrics.md again from photon.config.metrics.table.as_markdown()"
