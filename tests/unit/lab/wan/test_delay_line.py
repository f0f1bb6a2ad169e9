"""The delay line: when bytes come out, and in which order."""

import random

import pytest

from photon.lab.wan.delay_line import CHUNK_OVERHEAD, SLACK_S, DelayLine, End

ALL = 1 << 30


def test_a_chunk_comes_out_its_delay_after_its_arrival() -> None:
    line = DelayLine()
    line.push(b"a", 1.0)
    line.push(b"b", 1.2)
    assert line.due_at(0.5) == 1.5
    assert line.take(1.49, 0.5, ALL).chunks == []
    assert line.take(1.5, 0.5, ALL).chunks == [b"a"]
    assert line.due_at(0.5) == 1.7
    assert line.take(1.7, 0.5, ALL).chunks == [b"b"]
    assert line.due_at(0.5) is None


def test_a_delay_that_is_lowered_lets_go_at_once_in_order() -> None:
    line = DelayLine()
    for number in range(5):
        line.push(bytes([number]), number / 10)
    assert line.take(0.5, 60.0, ALL).chunks == []
    assert line.take(0.5, 0.2, ALL).chunks == [b"\0", b"\1", b"\2", b"\3"]


def test_a_delay_that_is_raised_holds_back_what_is_on_its_way() -> None:
    line = DelayLine()
    line.push(b"a", 0.0)
    assert line.due_at(0.1) == 0.1
    assert line.take(0.1, 1.0, ALL).chunks == []
    assert line.take(1.0, 1.0, ALL).chunks == [b"a"]


def test_an_end_travels_behind_the_bytes() -> None:
    line = DelayLine()
    line.push(b"last", 0.0)
    line.push(End.FINISHED, 0.0)
    assert line.ended
    assert (line.take(1.0, 1.0, 1).chunks, line.ended) == ([b"last"], True)
    assert line.take(1.0, 1.0, 1).end is End.FINISHED


def test_what_came_before_the_start_counts_as_arrived_at_it() -> None:
    line = DelayLine()
    line.push(b"early", 0.0)
    line.starts(0.2)
    assert line.due_at(0.1) == pytest.approx(0.3)
    assert line.take(0.25, 0.1, ALL).chunks == []
    assert line.take(0.3, 0.1, ALL).chunks == [b"early"]


def test_what_is_taken_at_once_is_bounded() -> None:
    line = DelayLine()
    for _ in range(4):
        line.push(b"1234", 0.0)
    sizes = [line.take(0.0, 0.0, 6).size for _ in range(3)]
    assert sizes == [8, 8, 0]


def test_small_chunks_count_for_the_memory_that_they_hold() -> None:
    line = DelayLine()
    for _ in range(10):
        line.push(b"x", 0.0)
    assert line.held == 10 * (1 + CHUNK_OVERHEAD)
    line.take(0.0, 0.0, 3)
    assert line.held == 7 * (1 + CHUNK_OVERHEAD)
    line.clear()
    assert (line.held, line.due_at(0.0)) == (0, None)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_early_or_out_of_order_however_the_delay_changes(seed: int) -> None:
    rng = random.Random(seed)
    line, now, delay = DelayLine(), 0.0, 0.0
    arrived: list[float] = []
    out = 0
    for _ in range(2_000):
        now += rng.choice((0.0, 0.001, rng.random() / 10))
        match rng.randrange(4):
            case 0 | 1:
                line.push(len(arrived).to_bytes(4, "big"), now)
                arrived.append(now)
            case 2:
                for chunk in line.take(now, delay, rng.randrange(1, 100)).chunks:
                    assert int.from_bytes(chunk, "big") == out
                    assert now >= arrived[out] + delay - SLACK_S - 1e-9
                    out += 1
            case 3:
                delay = rng.choice((0.0, 0.05, 0.5, rng.random()))
    left = b"".join(line.take(now + delay, delay, ALL).chunks)
    assert left == b"".join(n.to_bytes(4, "big") for n in range(out, len(arrived)))
