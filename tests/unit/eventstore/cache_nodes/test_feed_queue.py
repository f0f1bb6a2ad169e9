"""The queue before a node: bounded, the newest stays, and a node that is away does not hold the reader."""

from __future__ import annotations

import threading
import time

from photon.eventstore.cache_nodes.feeder import BATCH_BYTES, FeedQueue
from photon.eventstore.cache_nodes.wire import Piece


def piece(number: int, size: int = 100) -> Piece:
    return Piece((b"%d" % number).ljust(size), size)


def numbers(pieces: object) -> list[int]:
    assert isinstance(pieces, list)
    return [int(each.message) for each in pieces]


def test_pieces_come_out_in_order_and_together() -> None:
    queue = FeedQueue()
    for number in range(5):
        queue.put(piece(number))
    assert queue.bytes == 500
    assert numbers(queue.take()) == [0, 1, 2, 3, 4]
    assert queue.bytes == 0


def test_a_batch_is_bounded_but_one_piece_always_fits() -> None:
    queue = FeedQueue()
    for number in range(3):
        queue.put(piece(number, BATCH_BYTES // 2 + 1))
    queue.put(piece(3, 2 * BATCH_BYTES))
    assert [numbers(queue.take()) for _ in range(4)] == [[0], [1], [2], [3]]


def test_while_a_node_is_away_the_newest_stay_and_nobody_waits() -> None:
    queue = FeedQueue(1000, patience_s=60)
    queue.away(True)
    began = time.monotonic()
    for number in range(25):
        queue.put(piece(number))
    assert time.monotonic() - began < 30
    assert (queue.bytes, queue.dropped_bytes) == (1000, 1500)
    assert numbers(queue.take()) == list(range(15, 25))


def test_a_node_that_takes_nothing_is_waited_for_once() -> None:
    queue = FeedQueue(1000, patience_s=0.2)
    began = time.monotonic()
    for number in range(60):
        queue.put(piece(number))
    assert 0.2 <= time.monotonic() - began < 0.2 * 40
    assert numbers(queue.take()) == list(range(50, 60))


def test_a_node_that_takes_little_is_not_waited_for_again_and_again() -> None:
    queue = FeedQueue(1000, patience_s=0.2, monotonic=lambda: 0.0)  # no time passes, so no new patience
    began = time.monotonic()
    for number in range(60):
        queue.put(piece(number))
        queue.away(False)  # as after each feed that it took
    assert 0.2 <= time.monotonic() - began < 0.2 * 25
    assert numbers(queue.take()) == list(range(50, 60))


def test_a_slower_node_slows_the_reader_and_gets_everything() -> None:
    queue = FeedQueue(500, patience_s=60)
    taken: list[int] = []

    def take() -> None:
        while len(taken) < 200:
            taken.extend(numbers(queue.take()))

    taking = threading.Thread(target=take)
    taking.start()
    for number in range(200):
        queue.put(piece(number))
    taking.join(60)
    assert taken == list(range(200))
    assert queue.dropped_bytes == 0


def test_a_waiting_reader_goes_on_when_the_node_goes_away_or_the_queue_is_closed() -> None:
    for end in (lambda queue: queue.away(True), lambda queue: queue.close()):
        queue = FeedQueue(100, patience_s=60)
        queue.put(piece(1))
        putting = threading.Thread(target=queue.put, args=(piece(2),))
        putting.start()
        end(queue)
        putting.join(30)
        assert not putting.is_alive()


def test_what_never_fits_is_dropped() -> None:
    queue = FeedQueue(100, patience_s=0)
    queue.put(piece(1, 101))
    assert (queue.bytes, queue.dropped_bytes) == (0, 101)


def test_closed_it_gives_nothing_and_takes_nothing() -> None:
    queue = FeedQueue()
    queue.put(piece(1))
    queue.close()
    queue.put(piece(2))
    assert list(queue.take()) == []
    assert queue.dropped_bytes == 200
