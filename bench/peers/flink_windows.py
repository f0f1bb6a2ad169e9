"""Flink: the windows of ``bench.components.computing``: records of each user and second, then of each second.

``PYTHON flink_windows.py LINES STATE``: SQL over event time, in streaming mode, with exactly-once checkpoints every
10 s and the exactly-once file sink, parallelism 1, in one JVM. A job that fails is started again from its last
checkpoint. LINES has one file: Flink promises no order between several, and drops what comes late.
"""

import os
import sys
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

SETTINGS = {
    "execution.runtime-mode": "STREAMING",
    "parallelism.default": "1",
    "execution.checkpointing.interval": "10 s",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "restart-strategy.type": "exponential-delay",
    "taskmanager.memory.process.size": "2g",
    "taskmanager.memory.managed.fraction": "0.1",
    "table.local-time-zone": "UTC",
}
LINES = """
CREATE TABLE records (
    event_time_ns BIGINT, `foreign` ROW<`user` STRING>,
    moment AS TO_TIMESTAMP_LTZ(event_time_ns / 1000000, 3), WATERMARK FOR moment AS moment
) WITH ('connector' = 'filesystem', 'path' = '{lines}', 'format' = 'json')
"""
OUT = """
CREATE TABLE sums (`second` STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'csv')
"""
USERS = "CREATE TEMPORARY VIEW users AS SELECT records.`foreign`.`user` AS `user`, moment FROM records"
COUNTS = """
CREATE TEMPORARY VIEW counts AS SELECT `user`, window_time AS moment, COUNT(*) AS n FROM TABLE(TUMBLE(
    TABLE users, DESCRIPTOR(moment), INTERVAL '1' SECOND))
GROUP BY `user`, window_start, window_end, window_time
"""
SUMS = """
INSERT INTO sums SELECT CAST(window_start AS STRING), SUM(n) FROM TABLE(TUMBLE(
    TABLE counts, DESCRIPTOR(moment), INTERVAL '1' SECOND))
GROUP BY window_start, window_end
"""


def main() -> None:
    lines, state = (Path(each).absolute() for each in sys.argv[1:])
    os.environ.setdefault("PYFLINK_PYTHON", sys.executable)
    configuration = Configuration()
    for key, value in {**SETTINGS, "execution.checkpointing.dir": (state / "checkpoints").as_uri()}.items():
        configuration.set_string(key, value)
    tables = TableEnvironment.create(EnvironmentSettings.new_instance().with_configuration(configuration).build())
    for statement in (LINES, OUT, USERS, COUNTS):
        tables.execute_sql(statement.format(lines=lines.as_uri(), out=(state / "out").as_uri()))
    tables.execute_sql(SUMS).wait()
    print(_cpu_of_children())  # nobody waits for the JVM, so nobody else counts it


def _cpu_of_children() -> float:
    """Seconds."""
    ticks = 0
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


main()
