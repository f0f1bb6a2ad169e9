"""Wall time and processor time of each test file: ``make test-times``.

While PHOTON_TEST_TIMES names a directory every test process adds its files there; ``python -m tests.times DIRECTORY``
prints the table, the longest first. Processes that a test started count once they were waited for.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections import defaultdict
from pathlib import Path

LONGEST = 60


class Times:
    """Of one test process, by file: wall and CPU seconds, and how many tests."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}-{os.getpid()}.json"
        self._by_file: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])

    @staticmethod
    def now() -> tuple[float, float]:
        """(monotonic seconds, CPU seconds of this process and of those it waited for)."""
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        forked = sys.modules.get("tests.integration.forked")
        return time.monotonic(), sum(each.ru_utime + each.ru_stime for each in used) + sum(
            forked.ended_cpu_s if forked is not None else ()
        )

    def add(self, file: str, since: tuple[float, float]) -> None:
        """One test that began then."""
        known, now = self._by_file[file], self.now()
        known[0] += now[0] - since[0]
        known[1] += now[1] - since[1]
        known[2] += 1

    def write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self._by_file))


def main(directory: Path) -> None:
    total: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
    for found in directory.glob("*.json"):
        for file, times in json.loads(found.read_text()).items():
            for at, value in enumerate(times):
                total[file][at] += value
    print(f"{'wall s':>8} {'CPU s':>8} {'tests':>6}  file")
    for file, (wall, cpu, tests) in sorted(total.items(), key=lambda each: -each[1][0])[:LONGEST]:
        print(f"{wall:8.1f} {cpu:8.1f} {tests:6.0f}  {file}")
    wall, cpu, tests = (sum(column) for column in zip(*total.values(), strict=True))
    print(f"{wall:8.1f} {cpu:8.1f} {tests:6.0f}  all {len(total)} files")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
