from photon.lab.demo.check import ledger_problems
from photon.lab.demo.generator import Truth

TRUTH = Truth(
    joined={f"c{n}": f"q{n}" for n in range(6)}, unmatched={"c6", "c7"}, malformed=1, duplicates=2, clicks={}
)


def _ledger(joined: int, unmatched: int) -> dict[str, int]:
    made = {"joined": joined, "unmatched": unmatched, "elsewhere": 8 - joined - unmatched}
    return made | {"read": 11, "rejected": 1, "duplicate": 2, "filtered": 0, "late": 0, "pending": 0}


def test_ledgers_that_agree_with_the_truth() -> None:
    assert ledger_problems({"east": _ledger(4, 0), "west": _ledger(2, 2)}, TRUTH) == []


def test_a_click_made_twice_or_nowhere_shows_in_the_sum() -> None:
    problems = ledger_problems({"east": _ledger(4, 0), "west": _ledger(3, 2)}, TRUTH)
    assert any("all ledgers together have joined 7" in each for each in problems)
    assert any("east has elsewhere 4, but the truth is 5" in each for each in problems)


def test_a_ledger_that_does_not_balance_is_named() -> None:
    problems = ledger_problems({"east": {**_ledger(6, 2), "read": 12}}, TRUTH)
    assert "the ledger of east does not balance" in problems[0]
