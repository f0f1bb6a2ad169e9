"""Polars: one lazy query over both directories. A batch system: nothing survives a kill."""

import polars as pl
from options import parse

CLICK = {
    "click_id": pl.String, "query_id": pl.String, "time_us": pl.Int64, "position": pl.Int64, "cost_micros": pl.Int64,
}  # fmt: skip
QUERY = {
    "query_id": pl.String, "time_us": pl.Int64, "user": pl.String, "terms": pl.String, "country": pl.String,
    "device": pl.String, "ads": pl.List(pl.Int64), "bid": pl.Float64, "page": pl.String,
}  # fmt: skip


def main() -> None:
    given = parse()
    clicks = pl.scan_ndjson(f"{given.clicks}/*.log", schema=CLICK).unique("click_id")
    queries = pl.scan_ndjson(f"{given.queries}/*.log", schema=QUERY)
    joined = clicks.select("query_id", click=pl.struct(*CLICK)).join(
        queries.select("query_id", query=pl.struct(*QUERY)), on="query_id"
    )
    joined.select("click", "query").sink_ndjson(given.output / "joined.jsonl")


main()
