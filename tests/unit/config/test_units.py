"""Moments and sizes as people write them."""

from __future__ import annotations

import pytest

from photon.config.units import moment_ns, size

NOW = 1_760_000_000 * 10**9


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2h", 1_760_000_000 - 7200),
        ("0s", 1_760_000_000),
        (" 500ms ", 1_760_000_000 - 0.5),
        ("1759999999", 1_759_999_999),
        ("1759999999.25", 1_759_999_999.25),
        ("2025-10-09", 1_759_968_000),
        ("2025-10-09T08:00", 1_759_996_800),
        ("2025-10-09 08:00:00.5+02:00", 1_759_989_600.5),
        ("2025-10-09T08:00:00Z", 1_759_996_800),
        ("1969-12-31T23:59:59", -1),
    ],
)
def test_moments(text: str, seconds: float) -> None:
    assert moment_ns(text, NOW) == int(seconds * 100) * 10**7


@pytest.mark.parametrize("text", ["", "yesterday", "2025", "20251009", "2025-13-01", "-2h", "1e9", "25-10-09"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(ValueError, match='a time is "2026-11-21"'):
        moment_ns(text, NOW)


@pytest.mark.parametrize("text", ["1760000001", "2030-01-01"])
def test_the_future_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="in the future"):
        moment_ns(text, NOW)


def test_sizes_are_exact_and_bounded() -> None:
    assert (size("9007199254740993B"), size("1.5KiB"), size("2 GiB")) == (2**53 + 1, 1536, 2 << 30)
    for text in ("9" * 400, "9" * 400 + ".5", "8388608TiB"):
        with pytest.raises(ValueError, match="a size is"):
            size(text)
