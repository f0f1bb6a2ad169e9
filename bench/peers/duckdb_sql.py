"""DuckDB: one SQL statement over both directories. A batch system: nothing survives a kill."""

import duckdb
from options import parse

CLICK = "{click_id: 'VARCHAR', query_id: 'VARCHAR', time_us: 'BIGINT', position: 'BIGINT', cost_micros: 'BIGINT'}"
QUERY = (
    "{query_id: 'VARCHAR', time_us: 'BIGINT', user: 'VARCHAR', terms: 'VARCHAR', country: 'VARCHAR', "
    "device: 'VARCHAR', ads: 'BIGINT[]', bid: 'DOUBLE', page: 'VARCHAR'}"
)


def main() -> None:
    given = parse()
    read = "read_json('{}/*.log', format = 'newline_delimited', columns = {})"
    duckdb.execute(
        f"COPY (SELECT c AS click, q AS query FROM "
        f"(SELECT DISTINCT ON (click_id) * FROM {read.format(given.clicks, CLICK)}) c "
        f"JOIN {read.format(given.queries, QUERY)} q ON c.query_id = q.query_id) "
        f"TO '{given.output}/joined.jsonl' (FORMAT json)"
    )


main()
