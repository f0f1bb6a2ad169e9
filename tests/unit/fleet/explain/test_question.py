"""Accepted forms of an event id, and how it is searched for."""

from __future__ import annotations

import pytest

from photon.config.errors import UsageError
from photon.fleet.explain.question import Place, Question, own_offset, question_of

CANONICAL = "10.0.0.7:4711:1760000000000000"


def test_an_id_of_the_canonical_form_is_no_place_and_has_its_time() -> None:
    question = question_of(CANONICAL)
    assert question == Question(CANONICAL.encode())
    assert question.time_ns == 1_760_000_000_000_000_000
    assert question.needles() == [b'"event_id":"%b"' % CANONICAL.encode()]


def test_log_and_offset_may_be_an_id_as_well() -> None:
    question = question_of("east/clicks 1.log:73400320")
    assert question.place == Place("east/clicks 1.log", 73400320)
    assert question.needles()[1] == b'"source":{"file":"east/clicks 1.log","offset":73400320}'
    assert question.means(None, "east/clicks 1.log", 73400320)
    assert question.means(b"east/clicks 1.log:73400320", "other", 0)
    assert not question.means(b"other", "east/clicks 1.log", 73400321)
    assert question.time_ns is None


def test_raw_ids_come_as_base64() -> None:
    question = question_of("/wA6NQ==", raw=True)
    assert (question.event_id, question.place, question.shown) == (b"\xff\x00:5", None, "\\xff\x00:5")
    assert question.needles() == [b'"event_id_raw_base64":"/wA6NQ=="']


def test_quotes_are_escaped_as_records_have_them() -> None:
    assert question_of('a"b').needles() == [b'"event_id":"a\\"b"']


@pytest.mark.parametrize("text", ["", "a\nb", "x" * 4097])
def test_what_can_be_no_id_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="an event id has 1 to 4096 bytes"):
        question_of(text)
    with pytest.raises(UsageError, match="not base64"):
        question_of("***", raw=True)


def test_the_id_of_an_event_without_one() -> None:
    assert own_offset(b"0123456789abcdef0123456789abcdef:77") == 77
    assert own_offset(b"clicks.log:77") is None
