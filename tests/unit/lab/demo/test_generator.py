from collections import Counter
from pathlib import Path

import orjson

from photon.lab.demo.check import check
from photon.lab.demo.generator import Disorder, Generator


def _clicks(generator: Generator) -> list[bytes]:
    return [line.data for line in sorted(generator.lines(), key=lambda line: line.at_us) if not line.primary]


def test_the_same_seed_gives_the_same_stream() -> None:
    one, two = (list(Generator(7, clicks=200, seconds=5).lines()) for _ in range(2))
    assert one == two
    assert one != list(Generator(8, clicks=200, seconds=5).lines())


def test_the_truth_accounts_for_each_foreign_line() -> None:
    generator = Generator(3, clicks=3000, seconds=30)
    clicks = _clicks(generator)
    truth = generator.truth
    assert len(clicks) == truth.lines
    assert truth.duplicates > 0
    assert truth.malformed > 0
    assert truth.unmatched
    good = Counter(data[:-1] for data in clicks)
    assert all(good[record] >= 1 for record in truth.clicks.values())


def test_unmatched_clicks_name_no_query_and_others_do() -> None:
    generator = Generator(5, clicks=1000, seconds=10, disorder=Disorder(unmatched=0.2))
    queries = {orjson.loads(line.data)["query_id"] for line in generator.lines() if line.primary}
    truth = generator.truth
    assert set(truth.joined.values()) <= queries
    assert all(orjson.loads(truth.clicks[click])["query_id"] not in queries for click in truth.unmatched)


def _write(output: Path, log: str, records: list[dict[str, object]]) -> None:
    (output / log).mkdir(parents=True, exist_ok=True)
    (output / log / "a-000001.jsonl").write_bytes(b"".join(orjson.dumps(r) + b"\n" for r in records))


def test_the_check_sees_lost_doubled_invented_and_wrong_clicks(tmp_path: Path) -> None:
    generator = Generator(1, clicks=50, seconds=1, disorder=Disorder(unmatched=0.1, malformed=0, duplicated=0))
    list(generator.lines())
    truth = generator.truth
    joined = [
        {"event_id": click, "key": q, "foreign": orjson.loads(truth.clicks[click]), "primary": {"query_id": q}}
        for click, q in truth.joined.items()
    ]
    unmatched: list[dict[str, object]] = [{"event_id": click} for click in truth.unmatched]
    _write(tmp_path, "unmatched", unmatched)
    _write(tmp_path, "joined", joined)
    assert check([tmp_path], truth).problems == []
    _write(tmp_path, "joined", [*joined, joined[0]])
    assert "1 clicks twice" in check([tmp_path], truth).problems[0]
    _write(tmp_path, "joined", joined[1:])
    assert "1 clicks lost" in check([tmp_path], truth).problems[0]
    _write(tmp_path, "joined", [{**joined[0], "primary": {"query_id": "x"}}, *joined[1:]])
    assert "joined wrongly" in check([tmp_path], truth).problems[0]
    _write(tmp_path, "joined", joined)
    _write(tmp_path, "unmatched", [*unmatched, {"event_id": joined[0]["event_id"]}])
    assert len(check([tmp_path], truth).problems) == 2
