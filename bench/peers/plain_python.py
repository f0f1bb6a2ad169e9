"""A dict and orjson in one process: not for production, but the measure of Python's own speed.

The dict holds the smaller side, the clicks; queries stream past it. (With the queries in it, it takes three times as
long and a GiB.) That is possible only because all logs are finished.
"""

import orjson
from options import parse


def main() -> None:
    given = parse()
    waiting: dict[str, list[object]] = {}
    seen = set()
    for log in sorted(given.clicks.iterdir()):
        with open(log, "rb") as lines:
            for line in lines:
                click = orjson.loads(line)
                if click["click_id"] not in seen:
                    seen.add(click["click_id"])
                    waiting.setdefault(click["query_id"], []).append(click)
    with open(given.output / "joined.jsonl", "wb") as out:
        for log in sorted(given.queries.iterdir()):
            with open(log, "rb") as lines:
                for line in lines:
                    query = orjson.loads(line)
                    for click in waiting.pop(query["query_id"], ()):
                        out.write(orjson.dumps({"click": click, "query": query}) + b"\n")


main()
