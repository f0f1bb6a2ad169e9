"""Pathway, static mode, no persistence: nothing survives a kill."""

import os

import pathway as pw
from options import parse


class Click(pw.Schema):
    """A click as it is in the log."""

    click_id: str
    query_id: str
    time_us: int
    position: int
    cost_micros: int


class Query(pw.Schema):
    """A query as it is in the log; nested values stay JSON."""

    query_id: str
    time_us: int
    user: str
    terms: str
    country: str
    device: str
    ads: pw.Json
    bid: float
    page: str


@pw.udf
def _click(click_id: str, query_id: str, time_us: int, position: int, cost_micros: int) -> pw.Json:
    return pw.Json(
        {
            "click_id": click_id,
            "query_id": query_id,
            "time_us": time_us,
            "position": position,
            "cost_micros": cost_micros,
        }
    )


@pw.udf
def _query(
    query_id: str, time_us: int, user: str, terms: str, country: str, device: str, ads: pw.Json, bid: float, page: str
) -> pw.Json:
    return pw.Json(
        {
            "query_id": query_id, "time_us": time_us, "user": user, "terms": terms, "country": country,
            "device": device, "ads": ads.value, "bid": bid, "page": page,
        }
    )  # fmt: skip


def main() -> None:
    given = parse()
    os.environ.setdefault("PATHWAY_THREADS", str(given.processes))
    clicks = pw.io.jsonlines.read(str(given.clicks), schema=Click, mode="static")
    queries = pw.io.jsonlines.read(str(given.queries), schema=Query, mode="static")
    first = clicks.groupby(clicks.click_id).reduce(
        clicks.click_id,
        **{
            name: pw.reducers.any(getattr(clicks, name))
            for name in ("query_id", "time_us", "position", "cost_micros")
        },
    )
    joined = first.join(queries, first.query_id == queries.query_id).select(
        click=_click(first.click_id, first.query_id, first.time_us, first.position, first.cost_micros),
        query=_query(
            queries.query_id, queries.time_us, queries.user, queries.terms, queries.country, queries.device,
            queries.ads, queries.bid, queries.page,
        ),
    )  # fmt: skip
    pw.io.jsonlines.write(joined, str(given.output / "joined.jsonl"))
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)


main()
