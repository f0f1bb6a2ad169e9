"""Asks another process for the headers of a run's first records, before their ids are sent."""

from __future__ import annotations

from collections.abc import Sequence

from photon.adapters.computed_twice import TODO
from photon.adapters.contract import Adapter, AdapterError, LogFile
from photon.adapters.testkit.answers import answers, place
from photon.adapters.testkit.other_process import answers_elsewhere
from photon.adapters.testkit.samples import Sample, Samples

FIRST = 20


class FirstRecords:
    """The first foreign records of a run, asked for here and in another process."""

    def __init__(self, adapter: Adapter, records: Sequence[tuple[int, bytes]], file: LogFile) -> None:
        """``records``: offset and bytes of each; asks for them here."""
        self._adapter = adapter
        self._samples = [Sample(record, file, offset) for offset, record in records[:FIRST]]
        self._here = answers(adapter, Samples(foreign=self._samples))

    def compare(self) -> None:
        """Blocks until the other process has answered. Raises AdapterError, and NotThere where it cannot answer."""
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
