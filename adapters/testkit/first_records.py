"""Computes the headers of a run's first records in another process too, before their ids are sent."""

from __future__ import annotations

import time
from collections.abc import Sequence

from photon.adapters.computed_twice import TODO
from photon.adapters.containment import Guard
from photon.adapters.contract import Adapter, AdapterError, BadRecord, ForeignHeader, LogFile
from photon.adapters.faults import header_fault
from photon.adapters.testkit.answers import place
from photon.adapters.testkit.other_process import answers_elsewhere
from photon.adapters.testkit.samples import Sample, Samples

FIRST = 20


class FirstRecords:
    """The first foreign records of a run, whose headers are computed here and in another process."""

    def __init__(self, adapter: Adapter, records: Sequence[tuple[int, bytes]], file: LogFile) -> None:
        """``records``: offset and bytes of each. Computes FIRST of them here, or fewer if they take too long.

        Compares only records that have a header here: a record without one fails by itself.
        """

        def ask(record: bytes) -> ForeignHeader | BadRecord:
            try:
                return adapter.foreign_header(record, file)
            except BadRecord as bad:
                return bad

        guard, until = Guard(adapter), time.monotonic() + (adapter.time_limit_s or float("inf"))
        self._adapter = adapter
        self._samples: list[Sample] = []
        self._here: dict[str, str] = {}
        for offset, record in records[:FIRST]:
            (header,) = guard.each([record], ask, ends=True)
            if isinstance(header, ForeignHeader) and not header_fault(header):
                sample = Sample(record, file, offset)
                self._samples.append(sample)
                begin = f"{place('foreign', sample)}: foreign_header"
                self._here |= {f"{begin}.{name}": repr(value) for name, value in header._asdict().items()}
            if time.monotonic() > until:
                break

    def compare(self) -> None:
        """Blocks until the other process has answered. Raises AdapterError; NotThere if it cannot answer."""
        if not self._samples:
            return
        there = answers_elsewhere(self._adapter, Samples(foreign=self._samples), strange=False)
        for each in self._samples:
            begin = f"{place('foreign', each)}: foreign_header"
            for name, here in self._here.items():
                if name.startswith(begin) and there.get(name) != here:
                    what = (
                        f"foreign_header{name.removeprefix(begin)} is {here} here and "
                        f"{there.get(name, 'none')} in another process, for the record of {each.file.path} at offset "
                        f"{each.line}"
                    )
                    raise AdapterError(what, type(self._adapter).__name__, TODO)
