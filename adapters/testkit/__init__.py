"""Tries adapters: ``AdapterTests`` for pytest, ``examine`` and ``check_adapter`` for anything else.

>>> report = check_adapter(Billing({}), Samples.read(Billing({}), primary=Path("q.log"), foreign=Path("c.log")))
"""

from photon.adapters.testkit.checks import CHECKS, SLOWEST_PER_S, Report, Speed, check_adapter, examine
from photon.adapters.testkit.contract_tests import AdapterTests
from photon.adapters.testkit.samples import Sample, Samples

__all__ = [
    "CHECKS", "SLOWEST_PER_S", "AdapterTests", "Report", "Sample", "Samples", "Speed", "check_adapter", "examine",
]  # fmt: skip
