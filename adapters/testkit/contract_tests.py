"""The contract's checks as tests for pytest or unittest: derive a class from ``AdapterTests``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from photon.adapters.contract import Adapter, AdapterError
from photon.adapters.testkit.checks import (
    Check,
    bounded,
    check_bad_lines,
    check_batches,
    check_deterministic,
    check_elsewhere,
    check_framing,
    check_readable,
    check_speed,
    check_untouched,
    check_version,
)
from photon.adapters.testkit.samples import Samples


class AdapterTests:
    """One test for each check. A derived class names the adapter and the samples::

        class TestBilling(AdapterTests):
            adapter_class = Billing
            options = {"currency": "EUR"}
            primary = LOGS / "queries.log"  # or a directory: all files in it
            foreign = LOGS / "clicks.log"

    A failing test shows the findings, a line for each breach.
    """

    adapter_class: type[Adapter]
    options: ClassVar[Mapping[str, Any]] = {}
    primary: Path
    foreign: Path

    def adapter(self) -> Adapter:
        """Returns a new adapter. Override it if the options need more than a mapping."""
        return self.adapter_class(dict(self.options))

    def samples(self) -> Samples:
        __tracebackhide__ = True  # makes pytest show the user's line
        try:
            return Samples.read(self.adapter(), primary=self.primary, foreign=self.foreign)
        except AdapterError as error:
            raise AssertionError(f"{error}; it is named by {type(self).__name__}.primary or .foreign") from None

    def _keeps(self, check: Check) -> None:
        """Raises an error that lists findings, since pytest explains an ``assert`` only in files that it rewrites."""
        __tracebackhide__ = True
        found = bounded(check(self.adapter(), self.samples()))
        if found:
            raise AssertionError("\n".join([f"{len(found)} found:", *(f"- {each}" for each in found)]))

    def test_it_is_written_for_this_version_of_the_contract(self) -> None:
        self._keeps(check_version)

    def test_every_sample_is_read_and_joined(self) -> None:
        samples = self.samples()
        for side in ("primary", "foreign"):
            if not getattr(samples, side):
                __tracebackhide__ = True
                raise AssertionError(f"there is no {side} sample: put records into {getattr(self, side, side)}")
        self._keeps(check_readable)

    def test_the_same_bytes_give_the_same_answer(self) -> None:
        self._keeps(check_deterministic)

    def test_another_process_gives_the_same_answer(self) -> None:
        self._keeps(check_elsewhere)

    def test_nothing_that_it_is_handed_is_changed(self) -> None:
        self._keeps(check_untouched)

    def test_many_records_give_what_each_of_them_gives(self) -> None:
        self._keeps(check_batches)

    def test_bad_lines_are_rejected_and_nothing_else_happens(self) -> None:
        self._keeps(check_bad_lines)

    def test_a_framing_of_its_own_gives_the_same_records_wherever_bytes_are_cut(self) -> None:
        self._keeps(check_framing)

    def test_it_is_not_too_slow(self) -> None:
        self._keeps(check_speed)
