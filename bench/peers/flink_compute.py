"""Flink SQL: totals or windows of a key, in streaming mode with checkpoints and the exactly-once file sink.

Totals are one window of 100 years: a file sink takes no results that change.
"""

import os
import sys
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment


def main() -> None:
    output = Path(os.environ["BENCH_OUTPUT"]).absolute()
    os.environ.setdefault("PYFLINK_PYTHON", sys.executable)
    configuration = Configuration()
    for key, value in {
        "execution.runtime-mode": "STREAMING",
        "parallelism.default": "1",
        "execution.checkpointing.interval": "10 s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.dir": (output.parent / "checkpoints").as_uri(),
        "table.local-time-zone": "UTC",
        "taskmanager.memory.process.size": "3g",
        "taskmanager.memory.managed.fraction": "0.1",
    }.items():
        configuration.set_string(key, value)
    tables = TableEnvironment.create(EnvironmentSettings.new_instance().with_configuration(configuration).build())
    tables.execute_sql(
        "CREATE TABLE records (`key` STRING, cents BIGINT, `at` BIGINT, moment AS TO_TIMESTAMP_LTZ(`at` / 1000, 3), "
        "WATERMARK FOR moment AS moment - INTERVAL '10' SECOND) WITH ('connector' = 'filesystem', "
        f"'path' = '{Path(os.environ['BENCH_RECORDS']).absolute().as_uri()}', 'format' = 'json')"
    )
    tables.execute_sql(
        "CREATE TABLE found (`key` STRING, from_ns BIGINT, n BIGINT, cents BIGINT) WITH ('connector' = 'filesystem', "
        f"'path' = '{output.as_uri()}', 'format' = 'json', 'sink.rolling-policy.file-size' = '128MB')"
    )
    windows = os.environ["BENCH_TASK"] == "windows"
    size = "INTERVAL '1' MINUTE" if windows else "INTERVAL '36500' DAY(5)"
    begin = "UNIX_TIMESTAMP(CAST(window_start AS STRING)) * 1000000000" if windows else "CAST(0 AS BIGINT)"
    tables.execute_sql(
        f"INSERT INTO found SELECT `key`, {begin}, COUNT(*), SUM(cents) FROM TABLE(TUMBLE(TABLE records, "
        f"DESCRIPTOR(moment), {size})) GROUP BY `key`, window_start, window_end"
    ).wait()


main()
