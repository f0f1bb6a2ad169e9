"""Tests marked ``full`` are long rounds: they run with PHOTON_FULL only, as ``make test-full`` sets it.

A property runs 100 examples, or fewer where it says so; ``PHOTON_EXAMPLES=10`` gives each ten times what it says,
thousands in all, fresh ones. None has a deadline: a busy machine is no failure.
"""

from __future__ import annotations

import fcntl
import gc
import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, is_hypothesis_test, settings
from hypothesis.internal import entropy

from photon.supervision import ports
from tests.kit.stories import Story
from tests.times import Times

EXAMPLES_MAX = 100
GOLDEN = Path(__file__).parent / "golden"
gc.set_threshold(50_000, 20, 20)  # among 7,000 tests looking for garbage would be a tenth of what they take
# jsonschema would make parsers of addresses with it, for two seconds; the bill of materials, a process of its own,
# checks addresses.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
settings.register_profile("photon", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("photon")
# Nobody uses numpy's global generator: to seed it and to put it back takes a tenth of a millisecond an example.
entropy.NP_RANDOM = ()  # type: ignore[assignment]
_WORKERS_MAX, _PORTS = 5, 500
_NUMBER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_SLICE = _WORKERS_MAX * int(os.environ.get("PHOTON_TEST_LANE", "0")) + _NUMBER % _WORKERS_MAX
# Each test process draws from ports of its own: one that is drawn and not yet listened on is not another's.
ports.PORTS = ports.PORTS[_PORTS * _SLICE :][:_PORTS]
assert ports.PORTS, "PHOTON_TEST_LANE: there are ports for lanes 0 to 5"
# A Spark that runs for seconds is not worth the second compiler, nor collectors in parallel. The room for code is as
# with both compilers: in the 48 MiB of the first alone it is swept, and compiled again.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
SPARK_HOME, _CLASSES = Path(sys.prefix) / "spark-home", Path(sys.prefix) / "spark.jsa"
# At the address that it was made for: elsewhere each process would write all its pages.
_SHARED = (
    f" -XX:SharedArchiveFile={_CLASSES} -XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0 -Xlog:disable"
)
_JAVA = JAVA_OPTIONS + (_SHARED if _CLASSES.exists() else "")
# Of every driver that a test starts, whatever command does.
_SPARK = {
    "executor.extraJavaOptions": _JAVA,
    "executor.memory": "512m",
    "ui.enabled": "false",
    "sql.shuffle.partitions": "3",
    "driver.host": "127.0.0.1",
    "driver.bindAddress": "127.0.0.1",
}
if SPARK_HOME.exists():
    os.environ.setdefault("SPARK_HOME", str(SPARK_HOME))
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join([_JAVA, *(f'"-Dspark.{k}={v}"' for k, v in _SPARK.items())]))
os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", _JAVA)
os.environ.setdefault("SPARK_LAUNCHER_OPTS", JAVA_OPTIONS)
_TIMES = Times(Path(os.environ["PHOTON_TEST_TIMES"])) if "PHOTON_TEST_TIMES" in os.environ else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Afterwards lines are logged as before: a command that a test runs in its own process configures it for good."""
    began, configured = Times.now() if _TIMES else (0.0, 0.0), structlog.get_config()
    result = yield
    structlog.configure(**configured)
    if _TIMES is not None:
        _TIMES.add(item.location[0], began)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, object, object]:
    """Of the processes that run these tests, one compiles a file, and the others wait for what it wrote: each would
    take twenty seconds for all, as pytest rewrites every assertion."""
    if not isinstance(collector, pytest.Module):
        return (yield)
    with collector.path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return (yield)


def pytest_collection_finish() -> None:
    gc.freeze()


def pytest_sessionfinish() -> None:
    if _TIMES is not None:
        _TIMES.write()


@pytest.fixture
def golden() -> Callable[[str | Story, str], None]:
    """What people and programs are shown is what ``tests/golden`` holds under a name, and what a core answers is what
    its story says; ``make golden`` writes what is shown now, and its diff is reviewed."""

    def check(of: str | Story, shown: str) -> None:
        file = of.file if isinstance(of, Story) else GOLDEN / of
        held = of.text if isinstance(of, Story) else file.read_text() if file.exists() else ""
        if "PHOTON_GOLDEN" in os.environ:
            file.write_text(file.read_text().replace(held, shown) if held else shown)
            return
        assert shown == held, f"shown is another {of}: make golden, and review the diff"

    return check


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PHOTON_GOLDEN" in os.environ:
        items[:] = [each for each in items if "golden" in getattr(each, "fixturenames", ())]
    times = int(os.environ.get("PHOTON_EXAMPLES", "0"))
    for each in {_property(item) for item in items} - {None}:
        _set_examples(each, times)
    if os.environ.get("PHOTON_FULL"):
        return
    for item in items:
        if item.get_closest_marker("full") is not None:
            item.add_marker(pytest.mark.skip(reason="a long round: make test-full runs it"))


def _property(item: pytest.Item) -> Any:
    """What has the settings of a property: its function, or the class of a stateful one; None: it is none."""
    function, case = getattr(item, "function", None), getattr(item, "cls", None)
    if isinstance(getattr(case, "settings", None), settings):
        return case
    return function if is_hypothesis_test(function) else None


def _set_examples(test: Any, times: int) -> None:
    """A test's own ``@settings`` win over every profile, so that they are changed where Hypothesis keeps them."""
    name = "settings" if isinstance(test, type) else "_hypothesis_internal_use_settings"
    own = getattr(test, name, settings.default)
    if times:
        changed = settings(own, max_examples=times * own.max_examples, derandomize=False)
    else:
        changed = settings(own, max_examples=min(own.max_examples, EXAMPLES_MAX))
    setattr(test, name, changed)
