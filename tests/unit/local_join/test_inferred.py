"""Inference over sets of logs with known answers: right or refused, never wrong."""

from __future__ import annotations

import gzip
import json
import os
import random
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given as generated
from hypothesis import settings
from hypothesis import strategies as st

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import LogFile
from photon.adapters.inference import Inferred, Unclear, infer
from photon.adapters.inference.tables import has_header
from photon.local_join import inferred as module
from photon.local_join.given import Given
from photon.local_join.inferred import inferred
from tests.unit.local_join.sets import LogSet, csv, hexes, iso, jsonl, ms, sets

SEEDS = range(10 if os.environ.get("PHOTON_FULL") else 1)
ROOT = Path(__file__).parents[3]
Right = tuple[tuple[str, str], str | None]
Guesses = dict[int, list[tuple[LogSet, Inferred | Unclear]]]
REAL: dict[str, Right] = {
    "ads_olist_funnel": (("mql_id", "mql_id"), "won_date"),
    "net_zeek_apt29": (("uid", "uid"), "ts"),
    "ob_lobster_aapl": (("c3", "c3"), None),
}
EXAMPLES: dict[str, Right] = {
    "access_errors": (("rid", "request"), "ts"),
    "ads_billing": (("query_id", "query_id"), "time_us"),
    "zeek_protocols": (("uid", "uid"), "ts"),
}


def verdict(guess: Inferred | Unclear, key: tuple[str, str] | None, time: str | None) -> str:
    if isinstance(guess, Unclear):
        return "refused"
    assert guess.foreign.time is not None
    right = (guess.primary.key, guess.foreign.key) == key and guess.foreign.time.field == time
    return "right" if right else f"wrong: {guess.toml}"


@pytest.fixture(scope="module")
def guesses(tmp_path_factory: pytest.TempPathFactory) -> Guesses:
    """Guesses for each seed."""
    base = tmp_path_factory.mktemp("sets")
    return {
        seed: [(each, guessed(*each.write(base / f"{seed}" / each.name))) for each in sets(seed)] for seed in SEEDS
    }


def guessed(primary: Path, foreign: Path) -> Inferred | Unclear:
    return inferred(Given(primary), Given(foreign))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_guess_is_wrong_and_what_can_be_told_is(guesses: Guesses, seed: int) -> None:
    for each, guess in guesses[seed]:
        said = verdict(guess, each.key, each.time)
        problem = guess.problem if isinstance(guess, Unclear) else ""
        print(f"{each.name:66} {said:8} {problem}")
        assert said == ("refused" if each.key is None else "right"), (each.name, problem)


@pytest.mark.parametrize("name", [*REAL, *EXAMPLES])
def test_sets_that_others_have_written(name: str) -> None:
    if name in EXAMPLES:
        root = ROOT / "adapters" / "examples" / name / "logs"
    elif "PHOTON_TEST_DATA" in os.environ:
        root = Path(os.environ["PHOTON_TEST_DATA"]) / name
    else:
        pytest.skip("PHOTON_TEST_DATA is not set")
    key, time = (REAL | EXAMPLES)[name]
    said = verdict(guessed(root / "primary", root / "foreign"), key, time)
    print(f"{name:66} {said:8}")
    assert said == ("refused" if time is None else "right")  # LOBSTER's times name no day


def test_what_is_refused_is_shown_in_fields_of_the_logs_and_can_be_used(guesses: Guesses) -> None:
    """Each configuration that is shown reads the records of both sides."""
    for each, guess in guesses[0]:
        if isinstance(guess, Inferred) or each.name == "CSV of words alone":  # nothing there is a time
            continue
        ((_, sides),) = tomllib.loads(guess.example)["join"].items()
        adapter = ConfiguredAdapter(sides)
        for side, files in (("primary", each.primary), ("foreign", each.foreign)):
            header = getattr(adapter, f"{side}_has_header")
            lines = [line for data in files.values() for line in data.splitlines()]
            file = LogFile("a", lines[0] if header else b"")
            read = adapter.primary_key if side == "primary" else adapter.foreign_header
            for line in lines[1:] if header else lines:
                read(line, file)


def test_the_two_best_candidates_are_shown_with_what_speaks_for_them(tmp_path: Path) -> None:
    rng = random.Random(1)
    known = hexes(rng, 300)
    sent = [{"sender": a, "receiver": rng.choice(known), "ts": ms(i)} for i, a in enumerate(known[:200])]
    accounts = jsonl({"account": a} for a in known).splitlines()
    guess = infer({"a.log": accounts}, {"b.log": jsonl(sent).splitlines()})
    assert isinstance(guess, Unclear)
    shown = [line for line in guess.example.splitlines() if line.startswith(("# 1.", "# 2."))]
    assert len(shown) == 2
    for line in shown:
        assert "100% of" in line
        assert "unique there; for instance" in line
        assert any(value in line for value in known)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of a hundredth."""
    monkeypatch.setattr(module, "FOREIGN", (20_000, 200))
    monkeypatch.setattr(module, "PRIMARY", ((50_000, 500), (400_000, 4_000)))


@pytest.mark.usefixtures("small")
def test_large_logs_are_looked_at_in_windows_until_it_is_certain(tmp_path: Path) -> None:
    """A click names a query some hundred records before it."""
    rng = random.Random(2)
    queries = hexes(rng, 20_000)
    for part in range(4):
        here = range(5_000 * part, 5_000 * (part + 1))
        for name, rows in (
            ("primary", ({"q": queries[i], "user": f"u{rng.randrange(900)}", "ts": ms(i)} for i in here)),
            ("foreign", ({"about": queries[max(0, i - rng.randrange(300))], "ts": ms(i)} for i in here)),
        ):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / f"part-{part}.log").write_bytes(jsonl(rows))
    assert verdict(guessed(tmp_path / "primary", tmp_path / "foreign"), ("q", "about"), "ts") == "right"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("packed", [False, True])
def test_of_an_object_in_a_line_that_is_too_long_to_be_sampled_the_beginning_is_looked_at(
    tmp_path: Path, packed: bool
) -> None:
    """Like CloudTrail's files."""
    data = json.dumps({"Records": [{"eventID": each} for each in hexes(random.Random(5), 20_000)]}).encode()
    for name in ("primary", "foreign"):
        (tmp_path / name).mkdir()
        file = tmp_path / name / ("all.json.gz" if packed else "all.json")
        file.write_bytes(gzip.compress(data) if packed else data)
    guess = guessed(tmp_path / "primary", tmp_path / "foreign")
    assert isinstance(guess, Inferred)
    assert (guess.foreign.format, guess.foreign.records, guess.foreign.key) == ("json", "Records", "eventID")


@pytest.mark.usefixtures("small")
def test_of_one_large_packed_file_the_beginning_is_looked_at(tmp_path: Path) -> None:
    rng = random.Random(3)
    queries = hexes(rng, 10_000)
    for name, rows in (
        ("primary", ({"q": q, "ts": ms(i)} for i, q in enumerate(queries))),
        ("foreign", ({"about": queries[max(0, i - rng.randrange(30))], "ts": ms(i)} for i in range(10_000))),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "all.log.gz").write_bytes(gzip.compress(jsonl(rows)))
    assert verdict(guessed(tmp_path / "primary", tmp_path / "foreign"), ("q", "about"), "ts") == "right"


Noise = list[tuple[str, str]]
NAMES = st.sampled_from(["id", "order_id", "ref", "key", "user", "n", "seq", "order", "uuid", "parent_id", "count"])
NOISE = st.lists(st.tuples(NAMES, st.sampled_from(["counter", "few", "random", "fraction", "hex"])), max_size=4)


def value(kind: str, rng: random.Random, at: int) -> object:
    if kind == "counter":
        return at
    drawn = {"few": lambda: f"v{rng.randrange(7)}", "random": lambda: rng.randrange(1, 400), "fraction": rng.random}
    return drawn.get(kind, lambda: hexes(rng, 1)[0])()


@settings(max_examples=60, deadline=None)
@generated(st.integers(0, 10**9), NAMES, NAMES, NOISE, NOISE, st.booleans())
def test_under_any_names_and_beside_any_noise_no_guess_is_wrong(
    seed: int, primary: str, foreign: str, beside: Noise, others: Noise, related: bool
) -> None:
    """The key is unguessable, or there is none; names are drawn, so that they mislead."""
    rng = random.Random(seed)
    known = hexes(rng, 200)
    foreigners = rng.choices(known, k=150) if related else hexes(rng, 150)
    noise, foreign_noise = dict(beside), dict(others)
    first = [
        {**{n: value(k, rng, i) for n, k in noise.items()}, primary: key, "ts": ms(i)} for i, key in enumerate(known)
    ]
    second = [
        {**{n: value(k, rng, i) for n, k in foreign_noise.items()}, foreign: key, "ts": ms(i)}
        for i, key in enumerate(foreigners)
    ]
    guess = infer({"a.log": jsonl(first).splitlines()}, {"b.log": jsonl(second).splitlines()})
    if isinstance(guess, Unclear):
        return
    found = guess.primary.key, guess.foreign.key
    if related:
        assert found == (primary, foreign)
    else:  # only counters that both sides call by one telling name
        assert found[0] == found[1]
        assert noise[found[0]] == "counter"
        assert foreign_noise[found[1]] in ("random", "counter")


CELLS = st.sampled_from(["number", "time", "hex", "word"])


@settings(max_examples=100, deadline=None)
@generated(st.integers(0, 10**9), st.lists(CELLS, min_size=2, max_size=6), st.booleans(), st.integers(1, 3))
def test_a_header_is_told_by_values_or_not_at_all(seed: int, kinds: list[str], header: bool, files: int) -> None:
    rng = random.Random(seed)

    def cell(kind: str, at: int) -> str:
        if kind == "number":
            return str(rng.randrange(1000))
        if kind == "time":
            return iso(at)
        return hexes(rng, 1)[0] if kind == "hex" else rng.choice(["red", "green", "blue"])

    names = tuple(f"{kind}_{chr(97 + place)}" for place, kind in enumerate(kinds))
    tables = [
        [*([names] if header else []), *(tuple(cell(kind, i) for kind in kinds) for i in range(20))]
        for _ in range(files)
    ]
    told = has_header(tables, len(kinds))
    assert told in (header, None)
    if set(kinds) & {"number", "time"}:
        assert told is header


def test_csv_without_header_keeps_its_first_record(tmp_path: Path) -> None:
    rng = random.Random(4)
    orders = hexes(rng, 50)
    guess = infer(
        {"a.csv": csv((o, iso(i)) for i, o in enumerate(orders)).splitlines()},
        {"b.csv": csv((iso(i), rng.choice(orders)) for i in range(50)).splitlines()},
    )
    assert isinstance(guess, Inferred)
    assert guess.primary.columns == ("c1", "c2")
    adapter = ConfiguredAdapter.from_sides(guess.primary, guess.foreign)
    assert not adapter.primary_has_header


def test_the_documentation_has_these_counts(guesses: Guesses) -> None:
    counts = Counter(verdict(guess, each.key, each.time) for each, guess in guesses[0])
    total = ", ".join(f"{counts[word]} {word}" for word in ("right", "refused", "wrong"))
    assert f"On the {counts.total()} generated sets" in (text := (ROOT / "docs" / "inference.md").read_text())
    assert f": {total}." in text
