"""Flink: SQL in streaming mode with checkpoints, first-row deduplication and the exactly-once file sink.

The Python package lacks RocksDB's plug-in: state is on the heap, which is Flink's default and its fastest.
"""

import os
import sys
from pathlib import Path

from options import parse
from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

CLICK = "click_id STRING, query_id STRING, time_us BIGINT, `position` BIGINT, cost_micros BIGINT"
QUERY = (
    "query_id STRING, time_us BIGINT, `user` STRING, terms STRING, country STRING, device STRING, "
    "ads ARRAY<BIGINT>, bid DOUBLE, page STRING"
)


def _names(columns: str, table: str) -> str:
    return ", ".join(f"{table}.{column.split()[0]}" for column in columns.split(", "))


def main() -> None:
    given = parse()
    os.environ.setdefault("PYFLINK_PYTHON", sys.executable)
    configuration = Configuration()
    for key, value in {
        "execution.runtime-mode": "STREAMING",
        "parallelism.default": str(given.processes),
        "execution.checkpointing.interval": "10 s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.dir": (given.state / "checkpoints").absolute().as_uri(),
        "taskmanager.memory.process.size": "3g",
        "taskmanager.memory.managed.fraction": "0.1",
    }.items():
        configuration.set_string(key, value)
    tables = TableEnvironment.create(EnvironmentSettings.new_instance().with_configuration(configuration).build())

    def uri(path: Path) -> str:
        return path.absolute().as_uri()

    for name, columns, path in (("clicks", CLICK, given.clicks), ("queries", QUERY, given.queries)):
        moment = ", moment AS PROCTIME()" if name == "clicks" else ""
        tables.execute_sql(
            f"CREATE TABLE {name} ({columns}{moment}) WITH ('connector' = 'filesystem', 'path' = '{uri(path)}', "
            f"'format' = 'json')"
        )
    tables.execute_sql(
        f"CREATE TABLE joined (click ROW<{CLICK}>, query ROW<{QUERY}>) WITH ('connector' = 'filesystem', "
        f"'path' = '{uri(given.output)}', 'format' = 'json', 'sink.rolling-policy.file-size' = '128MB')"
    )
    first = (
        f"SELECT {_names(CLICK, 'clicks')} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY click_id ORDER BY moment) "
        f"AS place FROM clicks) AS clicks WHERE place = 1"
    )
    tables.execute_sql(
        f"INSERT INTO joined SELECT CAST(ROW({_names(CLICK, 'c')}) AS ROW<{CLICK}>), "
        f"CAST(ROW({_names(QUERY, 'q')}) AS ROW<{QUERY}>) FROM ({first}) AS c "
        f"JOIN queries AS q ON c.query_id = q.query_id"
    ).wait()


main()
