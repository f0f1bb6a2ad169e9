"""The contract's checks as tests: derive a class of pytest or unittest from ``AdapterTests``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from photon.adapters.contract import Adapter
from photon.adapters.testkit.checks import (
    check_bad_lines,
    check_batches,
    check_deterministic,
    check_elsewhere,
    check_readable,
    check_speed,
    check_untouched,
    check_version,
)
from photon.adapters.testkit.samples import Samples


class AdapterTests:
    """One test for each check. The class that derives from it says what is tried, and on what::

    class TestBilling(AdapterTests):
        adapter_class = Billing
        options = {"currency": "EUR"}
        primary = LOGS / "queries.log"
        foreign = LOGS / "clicks.log"
    """

    adapter_class: type[Adapter]
    options: ClassVar[Mapping[str, Any]] = {}
    primary: Path
    foreign: Path

    def adapter(self) -> Adapter:
        """A new one. Override it where the options need more than a mapping."""
        return self.adapter_class(dict(self.options))

    def samples(self) -> Samples:
        """The records that it must be able to read."""
        return Samples.read(self.adapter(), primary=self.primary, foreign=self.foreign)

    def test_it_is_written_for_this_version_of_the_contract(self) -> None:
        assert check_version(self.adapter(), self.samples()) == []

    def test_every_sample_is_read_and_joined(self) -> None:
        samples = self.samples()
        assert samples.primary
        assert samples.foreign
        assert check_readable(self.adapter(), samples) == []

    def test_the_same_bytes_give_the_same_answer(self) -> None:
        assert check_deterministic(self.adapter(), self.samples()) == []

    def test_another_process_gives_the_same_answer(self) -> None:
        assert check_elsewhere(self.adapter(), self.samples()) == []

    def test_nothing_that_it_is_handed_is_changed(self) -> None:
        assert check_untouched(self.adapter(), self.samples()) == []

    def test_many_records_give_what_each_of_them_gives(self) -> None:
        assert check_batches(self.adapter(), self.samples()) == []

    def test_bad_lines_are_rejected_and_nothing_else_happens(self) -> None:
        assert check_bad_lines(self.adapter(), self.samples()) == []

    def test_it_is_not_too_slow(self) -> None:
        assert check_speed(self.adapter(), self.samples()) == []
