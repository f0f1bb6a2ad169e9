"""The protocol core: events in, instructions out."""

from __future__ import annotations

import pytest

from photon.config.back_off import BackOff
from photon.idregistry.api import BATCH_BITS, Answer, Kind, incarnation_of
from photon.joiner.api import Outcome
from photon.joiner.core import (
    CARRY_ROWS_MAX,
    SMALL_ROWS,
    Append,
    CoreLimits,
    Insert,
    Release,
    Reply,
    SlotCore,
    Stop,
    SyncOutput,
    Write,
)
from tests.unit.joiner.helpers import answers_of, rows_for
from tests.unit.joiner.told import outcomes_of, owners_of

IDS = [b"a", b"b", b"c"]
C, T, U = Answer.COMMITTED, Answer.TAKEN, Answer.UNKNOWN


def inserted(core: SlotCore, ids: list[bytes] = IDS, *, deadline: float = 10.0) -> int:
    """A frame whose insert is under way."""
    number, _ = core.submit(rows_for(ids, core.take_token()), deadline)
    core.redo_synced(number)
    return number


def without_answers(core: SlotCore, ids: list[bytes]) -> None:
    """Adds a frame about which the registry was asked without answering."""
    core.answered(inserted(core, ids), answers_of([U] * len(ids)), 0.0)


def test_nothing_is_inserted_before_the_log_is_synced() -> None:
    core = SlotCore(1)
    number, instructions = core.submit(rows_for(IDS, core.take_token()), 10.0)
    assert [type(each) for each in instructions] == [Append]
    assert core.tick(5.0) == []
    (insert,) = core.redo_synced(number)
    assert len(insert.inserts.tokens) == 3


def test_a_group_sync_inserts_every_frame_up_to_it() -> None:
    core = SlotCore(1)
    numbers = [core.submit(rows_for([each], core.take_token()), 10.0)[0] for each in IDS]
    assert [each.frame for each in core.redo_synced(numbers[1]) if isinstance(each, Insert)] == numbers[:2]
    assert [each.frame for each in core.redo_synced(numbers[2]) if isinstance(each, Insert)] == numbers[2:]


def test_each_token_is_another_batch_of_the_incarnation() -> None:
    core = SlotCore(7)
    tokens = [core.take_token() for _ in range(3)]
    assert {incarnation_of(token) for token in tokens} == {7}
    assert len({token % (1 << BATCH_BITS) for token in tokens}) == 3


def test_committed_rows_are_written_and_answered_and_released_after_the_sync() -> None:
    core = SlotCore(1)
    number = inserted(core)
    write, reply = core.answered(number, answers_of([C, C, C]), 1.0)
    assert write.chunks == ((Kind.JOINED, b"".join(rows_for(IDS, 1 << 40 | 1).lines)),)
    assert isinstance(reply, Reply)
    assert outcomes_of(reply) == [Outcome.JOINED] * 3
    assert not core.empty
    assert core.written(write.number, sum(len(data) for _, data in write.chunks)) == []
    assert core.unwritten_bytes == 0
    assert core.output_synced(write.number) == [Release((number,))]
    assert core.empty


def test_dropped_rows_are_not_written_and_leave_at_once() -> None:
    core = SlotCore(1)
    number = inserted(core)
    codes = [Answer.BELOW_BOUNDARY, Answer.TOO_NEW, Answer.DONE]
    reply, release = core.answered(number, answers_of(codes), 1.0)
    assert isinstance(reply, Reply)
    assert outcomes_of(reply) == [Outcome.LATE, Outcome.TOO_NEW, Outcome.JOINED]
    assert release == Release((number,))


@pytest.mark.parametrize(("datacentre", "tag", "same"), [("dc0", 0, True), ("dc0", 9, False), ("dc1", 0, True)])
def test_taken_says_whose_it_is(datacentre: str, tag: int, same: bool) -> None:
    core = SlotCore(1)
    number = inserted(core, [b"a"])
    reply = core.answered(number, answers_of([T], datacentre=datacentre, tags=[tag]), 1.0)[0]
    assert isinstance(reply, Reply)
    assert outcomes_of(reply) == [Outcome.TAKEN]
    assert owners_of(reply)[0].same_line is same
    assert owners_of(reply)[0].datacentre == datacentre


def test_unknown_rows_are_asked_for_again_under_their_token_until_known() -> None:
    core = SlotCore(1, CoreLimits(retry=BackOff(1.0, 2.0), sync_output_after_s=100.0, answer_after_s=100.0))
    number = inserted(core, deadline=5.0)
    (write,) = core.answered(number, answers_of([C, U, C]), 0.0)
    assert isinstance(write, Write)
    assert core.tick(0.5) == []
    (insert,) = (each for each in core.tick(1.5) if isinstance(each, Insert))
    assert insert.inserts.digests == rows_for([b"b"], 1).digests
    assert insert.inserts.tokens.tolist() == [1 << 40 | 1]
    assert core.outstanding
    replies = core.tick(5.0)
    assert isinstance(replies[0], Reply)
    assert outcomes_of(replies[0]) == [Outcome.JOINED, Outcome.RETRY, Outcome.JOINED]
    out = core.answered(number, answers_of([C]), 6.0)
    assert [type(each) for each in out] == [Write]
    assert not core.outstanding
    assert core.output_synced(2) == [Release((number,))]


def test_what_stays_unknown_is_asked_for_ever_more_seldom() -> None:
    core = SlotCore(1, CoreLimits(retry=BackOff(first=1.0, most=5.0), answer_after_s=100.0))
    number, now = inserted(core, [b"a"], deadline=100.0), 0.0
    for delay in (1.0, 2.0, 4.0, 5.0, 5.0):
        core.answered(number, answers_of([U]), now)
        assert core.tick(now + delay - 0.01) == []
        now += delay
        assert [type(each) for each in core.tick(now)] == [Insert]


def test_what_is_known_is_not_held_back_by_what_is_not() -> None:
    core = SlotCore(1, CoreLimits(retry=BackOff(10.0, 10.0), sync_output_after_s=100.0, answer_after_s=0.5))
    number = inserted(core, deadline=30.0)
    core.answered(number, answers_of([C, U, C]), 1.0)
    assert core.tick(1.4) == []
    (reply,) = core.tick(1.5)
    assert isinstance(reply, Reply)
    assert outcomes_of(reply) == [Outcome.JOINED, Outcome.RETRY, Outcome.JOINED]
    assert core.open_rows == 1  # and it is asked for again, under its token
    (insert,) = (each for each in core.tick(11.0) if isinstance(each, Insert))
    assert insert.inserts.tokens.tolist() == [1 << 40 | 1]
    assert [type(each) for each in core.answered(number, answers_of([C]), 12.0)] == [Write]


def test_a_frame_with_an_unknown_row_does_not_leave_after_a_sync() -> None:
    core = SlotCore(1)
    number = inserted(core)
    core.answered(number, answers_of([C, U, C]), 0.0)
    assert core.output_synced(1) == []
    assert not core.empty


def test_too_new_after_an_unheard_insert_says_nothing() -> None:
    core = SlotCore(1)
    number = inserted(core, [b"a"])
    core.answered(number, answers_of([U]), 0.0)
    core.tick(1.0)
    assert core.answered(number, answers_of([Answer.TOO_NEW]), 1.0) == []
    assert core.open_rows == 1


def test_what_waits_for_a_clock_is_known_and_holds_up_no_end() -> None:
    core = SlotCore(1)
    number = inserted(core, [b"a", b"b"])
    core.answered(number, answers_of([U, U]), 0.0)
    assert not core.waits_for_time
    core.tick(1.0)
    core.answered(number, answers_of([Answer.TOO_NEW, U]), 1.0)
    assert len(core.early) == 1
    assert set(core.early) < core.outstanding
    assert not core.waits_for_time
    core.tick(4.0)
    core.answered(number, answers_of([Answer.TOO_NEW, Answer.TOO_NEW]), 4.0)
    assert core.waits_for_time
    core.tick(9.0)
    core.answered(number, answers_of([C, Answer.TOO_NEW]), 9.0)
    assert len(core.early) == 1
    assert core.waits_for_time  # what is written is synced with the rest
    core.tick(20.0)
    core.answered(number, answers_of([C]), 20.0)
    assert not core.early
    assert not core.outstanding
    assert not core.waits_for_time


@pytest.mark.parametrize("code", [Answer.FENCED, Answer.STALE_INCARNATION, Answer.REFUSED])
def test_fenced_stale_or_senseless_answers_stop_the_process(code: Answer) -> None:
    core = SlotCore(1)
    number = inserted(core)
    (stop,) = core.answered(number, answers_of([C, code, C]), 0.0)
    assert isinstance(stop, Stop)


def test_answers_of_another_length_stop_the_process() -> None:
    core = SlotCore(1)
    number = inserted(core)
    (stop,) = core.answered(number, answers_of([C]), 0.0)
    assert isinstance(stop, Stop)


def test_kinds_are_written_apart() -> None:
    core = SlotCore(1)
    rows = rows_for(IDS, core.take_token())
    rows.kinds[1] = Kind.UNMATCHED
    number, _ = core.submit(rows, 1.0)
    core.redo_synced(number)
    write, reply = core.answered(number, answers_of([C, C, C]), 0.0)
    assert dict(write.chunks) == {Kind.JOINED: rows.lines[0] + rows.lines[2], Kind.UNMATCHED: rows.lines[1]}
    assert isinstance(reply, Reply)
    assert outcomes_of(reply) == [Outcome.JOINED, Outcome.UNMATCHED, Outcome.JOINED]


def test_redo_asks_for_what_is_missing_under_its_old_tokens() -> None:
    core = SlotCore(9)
    old = rows_for(IDS, 3 << 40 | 5)
    (insert,) = core.start([(0, old)])
    assert insert.inserts.tokens.tolist() == [3 << 40 | 5] * 3
    assert core.outstanding == set(old.digest_list())
    out = core.answered(0, answers_of([C, T, Answer.DONE]), 0.0)
    assert [type(each) for each in out] == [Write]
    number, _ = core.submit(rows_for([b"x"], core.take_token()), 1.0)
    assert number == 1


def test_open_rows_far_behind_the_head_are_carried_over_under_their_tokens() -> None:
    core = SlotCore(1, CoreLimits(carry_over_behind_bytes=100))
    first, second = inserted(core, [b"a", b"b"], deadline=0.5), inserted(core, [b"c"], deadline=0.5)
    core.answered(first, answers_of([U, U]), 0.0)
    core.answered(second, answers_of([U]), 0.0)
    last = inserted(core, [b"%d" % n for n in range(20)])
    out = core.tick(0.01)
    append = next(each for each in out if isinstance(each, Append))
    assert append.rows.tokens.tolist() == [1 << 40 | 1, 1 << 40 | 1, 1 << 40 | 2]
    assert sum(isinstance(each, Reply) for each in out) == 2
    assert not any(isinstance(each, Insert) for each in core.tick(9.0))
    released = core.redo_synced(append.frame)
    assert [each for each in released if isinstance(each, Release)] == [Release((first,)), Release((second,))]
    (insert,) = (each for each in released if isinstance(each, Insert))
    assert insert.frame == append.frame
    core.answered(append.frame, answers_of([C, T, C]), 10.0)
    core.answered(last, answers_of([C] * 20), 10.0)
    assert (core.open_rows, core.open_bytes) == (0, 0)


def test_many_small_frames_are_carried_over_together() -> None:
    core = SlotCore(1, CoreLimits(open_frames_max=3))
    frames = [inserted(core, [b"e%d" % n], deadline=0.5) for n in range(5)]
    for number in frames:
        core.answered(number, answers_of([U]), 0.0)
    (append,) = (each for each in core.tick(0.01) if isinstance(each, Append))
    assert append.rows.tokens.tolist() == [1 << 40 | n for n in range(1, 6)]
    released = core.redo_synced(append.frame)
    assert [each for each in released if isinstance(each, Release)] == [Release((number,)) for number in frames]
    (insert,) = (each for each in released if isinstance(each, Insert))
    core.answered(append.frame, answers_of([U] * 5), 1.0)
    assert not any(isinstance(each, Append) for each in core.tick(9.0)), "one frame alone is not logged again"
    assert insert.inserts.tokens.tolist() == append.rows.tokens.tolist()


def test_what_is_not_far_behind_is_not_carried_over_with_what_is() -> None:
    core = SlotCore(1, CoreLimits(carry_over_behind_bytes=100))
    for ids in ([b"%d" % n for n in range(20)], [b"near"]):
        without_answers(core, ids)
    (append,) = (each for each in core.tick(0.01) if isinstance(each, Append))
    assert append.rows.tokens.tolist() == [1 << 40 | 1] * 20


def test_one_frame_carries_over_a_bounded_number_of_rows() -> None:
    core = SlotCore(1, CoreLimits(carry_over_behind_bytes=0))
    for frame in range(3):
        without_answers(core, [b"%d %d" % (frame, n) for n in range(CARRY_ROWS_MAX // 2)])
    (append,) = (each for each in core.tick(0.01) if isinstance(each, Append))
    assert len(append.rows.lines) == CARRY_ROWS_MAX


@pytest.mark.parametrize(("count", "logged"), [(SMALL_ROWS, True), (SMALL_ROWS + 1, False)])
def test_frames_with_many_open_rows_are_not_logged_again_for_their_number(count: int, logged: bool) -> None:
    core = SlotCore(1, CoreLimits(open_frames_max=1))
    many = [b"%d" % n for n in range(count)]
    for rows in (many, [b"x" + each for each in many]):
        without_answers(core, rows)
    assert any(isinstance(each, Append) for each in core.tick(0.01)) is logged


def test_output_is_synced_lazily_and_once() -> None:
    core = SlotCore(1, CoreLimits(sync_output_after_s=2.0))
    number = inserted(core)
    core.answered(number, answers_of([C, C, C]), 0.0)
    assert core.tick(1.0) == []
    assert core.tick(2.0) == [SyncOutput()]
    assert core.tick(5.0) == []
    assert core.output_synced(1) == [Release((number,))]


def test_output_is_synced_at_once_in_a_hurry_or_when_much_is_written() -> None:
    core = SlotCore(1)
    core.answered(inserted(core), answers_of([C, C, C]), 0.0)
    assert core.tick(0.0, hurry=True) == [SyncOutput()]
    much = SlotCore(1, CoreLimits(sync_output_after_bytes=10))
    much.answered(inserted(much), answers_of([C, C, C]), 0.0)
    assert much.tick(0.0) == [SyncOutput()]
