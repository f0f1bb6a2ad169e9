"""No object is lost, in any order of arrival, and ``whole_ns`` is never too late. Each rule has its ablation."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from photon.objects import listing as module
from photon.objects.api import Meta
from photon.objects.listing import ALL_S, NEW_S, Listing, TooManyObjects
from tests.unit.objects.fakes import MemoryBucket, unavailable


def run(seed: int, make: Callable[[], Listing] = Listing, steps: int = 120) -> tuple[list[str], list[str]]:
    """A bucket that grows, hides objects from listings for some time and truncates these; returns lost objects, and
    claims of ``whole_ns`` that did not hold."""
    draws = random.Random(seed)

    def fails(request: str) -> OSError | None:
        return unavailable() if draws.random() < (0.1 if request.startswith("list") else 0.01) else None

    bucket = MemoryBucket(fails, page_keys=3)
    listing, now, wrong = make(), 0.0, []
    shown_at: dict[str, float] = {}

    def show(keys: set[str]) -> None:
        bucket.hidden -= keys
        shown_at.update(dict.fromkeys(keys, now))

    for step in range(steps):
        now += draws.choice((0.1, 1.0, 3.0))
        if step < steps - 30:
            for _ in range(draws.choice((0, 0, 1, 4))):
                key = f"h{draws.randrange(3)}/{draws.randrange(10**6):06}"
                bucket.data[key] = b"x"
                shown_at[key] = now
                if draws.random() < 0.2:  # a store whose listings are behind: nothing can be claimed of it yet
                    bucket.hidden.add(key)
                    shown_at[key] = float("inf")
        else:
            show(set(bucket.hidden))
        if bucket.hidden and draws.random() < 0.3:
            show({draws.choice(sorted(bucket.hidden))})
        if now < listing.due_at():
            continue
        begun = listing.begin(now, round(now * 1e9))
        # Objects that come during a listing may be shown or not.
        try:
            for page in bucket.list("h", begun.after):
                shown = list(page)
                draws.shuffle(shown)
                listing.page(begun, shown)
                now += draws.choice((0.0, 0.2))
        except OSError:
            listing.failed(now)
        else:
            listing.end(begun, now)
        claimed = listing.whole_ns or 0
        wrong += [key for key, at in shown_at.items() if at * 1e9 < claimed and key not in listing.known]
    return sorted(bucket.data.keys() - listing.known.keys()), wrong


@pytest.mark.parametrize("seed", range(25))
def test_nothing_is_lost(seed: int) -> None:
    assert run(seed) == ([], [])


class OnlyNew(Listing):
    """Lists only objects after the last key, once all were listed."""

    def begin(self, now: float, now_ns: int) -> module.Pass:
        return super().begin(now if self.whole_ns is None else min(now, self._all_at - 1), now_ns)


class WholeByAny(Listing):
    """Takes a listing after the last key for a complete one."""

    def end(self, listing: module.Pass, now: float) -> None:
        super().end(listing, now)
        self.whole_ns = listing.begun_ns


@pytest.mark.parametrize("ablation", [OnlyNew, WholeByAny])
def test_ablations_show(ablation: Callable[[], Listing]) -> None:
    assert any(run(seed, ablation) != ([], []) for seed in range(25))


def test_what_is_gone_is_forgotten_by_a_whole_listing_only() -> None:
    listing = Listing()
    one, two = Meta("a", 1, 0, "e"), Meta("b", 1, 0, "e")
    first = listing.begin(0.0, 5)
    listing.page(first, [one, two])
    listing.end(first, 0.0)
    assert listing.whole_ns == 5
    new = listing.begin(NEW_S, 6)
    assert new.after == "b"
    listing.end(new, NEW_S)
    assert listing.known.keys() == {"a", "b"}
    assert listing.whole_ns == 5
    whole = listing.begin(ALL_S, 7)
    assert whole.after == ""
    listing.page(whole, [one])
    listing.end(whole, ALL_S)
    assert listing.known.keys() == {"a"}


def test_listings_cost_a_bounded_share(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = Listing()
    whole = listing.begin(0.0, 1)
    listing.page(whole, [Meta(f"{number:06}", 1, 0, "e") for number in range(100_000)])
    listing.end(whole, 0.0)
    assert listing._all_at == 100.0  # a hundred pages: one a second
    monkeypatch.setattr(module, "OBJECTS_MAX", 100_000)
    with pytest.raises(TooManyObjects, match="name a longer prefix"):
        listing.page(listing.begin(1.0, 1), [Meta("one more", 1, 0, "e")])
