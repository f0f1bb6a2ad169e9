"""Lines of text as records: encodings, lines left out, and lines that belong together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from photon.adapters.contract import Framing
from photon.adapters.formats import text_lines
from photon.adapters.formats.encodings import canonical
from photon.adapters.formats.json_objects import JsonObjects
from photon.adapters.formats.text_lines import BYTES_MAX, LINES_MAX, TextLines
from photon.adapters.logs.own_framing import cut_checked
from photon.adapters.logs.unended_lines import RestRule
from tests.unit.adapters.logs.tails import Tail, append

BEGINS = TextLines(begins=rb"\d{4}-")
IN_CRI = TextLines(begins=rb"\d{4}-", cri=True, before=Framing("cri"))
OUT, ERR = b"2024-03-01T10:00:00Z stdout ", b"2024-03-01T10:00:00.5Z stderr "
FRAMINGS = [
    TextLines(encoding="utf-16"),
    TextLines(encoding="cp1252", skip_lines=2, comment=b"#"),
    TextLines(skip_lines=1),
    TextLines(begins=rb"\d", comment=b"#", colours=True),
    TextLines(continues=rb"\s|b", joint=b" "),
    TextLines(begins=rb"1", cri=True),
]
TEXTS = ["1", OUT.decode(), ERR.decode(), "b ", " ", "\t", "#", "ü", "\x1b[31m", "\n", "\r\n", "\U0001f600"]
TRACES = b"2024-a\r\n at x\r\n\r\n at y\r\n2024-b\n2024-c\n z\n"


def made(framing: Framing, parts: list[bytes]) -> tuple[bytes, bytes]:
    """The lines, and the bytes that wait."""
    text, state, rest = b"", b"", b""
    for part in parts:
        rest += part
        cut = cut_checked(framing, rest, state)
        assert not isinstance(cut, str), cut
        text, state, rest = text + cut.text, cut.state, rest[cut.used :]
    return text, rest


@given(
    st.sampled_from(FRAMINGS),
    st.lists(st.sampled_from(TEXTS), max_size=40),
    st.lists(st.integers(0, 90), max_size=5),
)
@example(TextLines(skip_lines=1), ["1"] * 30 + ["\n", "1", "\n"], [26])
@example(TextLines(skip_lines=1, comment=b"#"), ["1"] * 30 + ["\n", "1", "\n"], [26])
def test_the_records_are_the_same_wherever_the_bytes_are_cut(
    framing: TextLines, texts: list[str], cuts: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:  # long lines come in parts
        patch.setattr(text_lines, "LINE_BYTES", 8)
        patch.setattr(text_lines, "PART_BYTES", 24)
        data = "".join(texts).encode(framing.encoding, "replace")
        places = sorted({min(each, len(data)) for each in cuts})
        parts = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
        whole, in_parts = made(framing, [data]), made(framing, parts)
        common = min(len(whole[0]), len(in_parts[0]))
        assert whole[0][:common] == in_parts[0][:common]
        end = framing.ended(b"", b"") or b"\n"
        if data.endswith(("\n".encode(framing.encoding)[-2:] if framing.encoding == "utf-16" else b"\n", end)):
            assert whole[0] == in_parts[0]


@pytest.mark.parametrize(
    ("framing", "data", "records"),
    [
        (
            IN_CRI,
            ERR + b"2024-a\n" + ERR + b" x\n\n" + OUT + b" y\nno CRI\n" + OUT + b" z\n",
            ERR + b"2024-a\v x\v\n" + OUT + b" y\nno CRI\n" + OUT + b" z",
        ),
        (BEGINS, TRACES, b"2024-a\v at x\v\v at y\n2024-b\n2024-c\v z"),
        (TextLines(continues=rb"\s", joint=b" "), b"a\n b\nc\n\td\n", b"a  b\nc \td"),
        (TextLines(skip_lines=2, comment=b"#"), b"\xef\xbb\xbfTitle\nof it\n#x\na,b\n# y\n1,2\n", b"a,b\n1,2\n"),
        (TextLines(colours=True), b"\x1b[2m2024\x1b[0m \x1b[36mid=\x1b[0m5\n", b"2024 id=5\n"),
        (TextLines(encoding="cp037"), "key\nsize\n".encode("cp037"), b"key\nsize\n"),
        (TextLines(encoding="utf-16"), "\ufeffgröße\n".encode("utf-16-be"), "größe\n".encode()),
        (TextLines(encoding="utf-16-be"), "größe\n".encode("utf-16-be"), "größe\n".encode()),
        (TextLines(encoding="utf-16"), "\ud83d\n".encode("utf-16-le", "surrogatepass"), b"\xed\xa0\xbd\n"),
    ],
)
def test_what_is_made_of_a_text(framing: TextLines, data: bytes, records: bytes) -> None:
    assert made(framing, [data]) == (records, b"")
    assert made(framing, [data[at : at + 1] for at in range(len(data))])[0] == records


def test_a_record_has_bounds_in_lines_and_bytes() -> None:
    lines = made(TextLines(continues=rb"\s"), [b"a\n" + b" b\n" * (2 * LINES_MAX) + b"c\n"])[0].split(b"\n")
    assert [each.count(b"\v") + 1 for each in lines] == [LINES_MAX, LINES_MAX, 1, 1]
    line = b" " + b"x" * (BYTES_MAX // 3) + b"\n"
    lines = made(TextLines(continues=rb"\s"), [b"a\n" + line * 5])[0].split(b"\n")
    assert [each.count(b"\v") + 1 for each in lines] == [4, 2]


@pytest.mark.parametrize(
    ("given", "name"),
    [("UTF8", "utf-8"), ("latin-1", "iso8859-1"), ("windows-1252", "cp1252"), ("UTF-16LE", "utf-16-le"),
     ("cp037", "cp037"), ("shift_jis", None), ("utf-32", None), ("utf-7", None), ("gb18030", None), ("rot13", None),
     ("base64", None), ("idna", None), ("unicode_escape", None), ("no such", None)],
)  # fmt: skip
def test_encodings_in_which_line_ends_can_be_found(given: str, name: str | None) -> None:
    assert canonical(given) == name


class Clock:
    now_ns = 1_760_000_000 * 10**9

    def rule(self) -> RestRule:
        return RestRule(60.0, lambda: self.now_ns)


def written(path: Path, data: bytes, at_ns: int) -> None:
    append(path, data)
    os.utime(path, ns=(at_ns, at_ns))


CRI_TRACES = b"".join(
    [ERR + b"F 2024-a\n", ERR + b"P  at\n", ERR + b"F  x\r\n", ERR + b"F \n", OUT + b"F 2024-b\n",
     ERR + b"F 2024-c\n", ERR + b"F  z\n"]
)  # fmt: skip


@pytest.mark.parametrize("pieces", [1, 3, 7, 400])
@pytest.mark.parametrize("rests", [False, True])
@pytest.mark.parametrize(
    ("framing", "traces", "ends", "last"),
    [(BEGINS, TRACES, (b"2024-b", b"2024-c"), b""), (IN_CRI, CRI_TRACES, (OUT, ERR + b"F 2024-c"), ERR + b"F ")],
)
def test_exactly_once_over_restarts_wherever_the_file_is_cut(
    tmp_path: Path, pieces: int, rests: bool, framing: TextLines, traces: bytes, ends: tuple[bytes, ...], last: bytes
) -> None:
    """With ``rests`` each restart is after the file was at rest, but only where a record ends."""
    clock, log = Clock(), tmp_path / "a.log"
    want = made(BEGINS, [TRACES + b"2024-end\n"])[0].split(b"\n")[:-1]
    if framing is IN_CRI:
        want = [ERR + b"2024-a\v at x\v", OUT + b"2024-b", ERR + b"2024-c\v z"]
    read: list[bytes] = []
    tail = Tail(tmp_path, framing=framing, rest=clock.rule())
    places = {*map(traces.index, ends), len(traces)}
    step, done = -(-len(traces) // pieces), 0
    while done < len(traces):
        end = min(done + step, len(traces))
        written(log, traces[done:end], clock.now_ns)
        done = end
        clock.now_ns += (61 if rests and done in places else 1) * 10**9
        read += tail.read()
        positions = tail.follower.positions()
        tail.close()
        tail = Tail(tmp_path, positions, framing=framing, rest=clock.rule())
        assert tail.problems == []
    written(log, last + b"2024-end\n", clock.now_ns)
    read += tail.read()
    assert (read, tail.problems) == (want, [])
    tail.close()


JSON = [
    (JsonObjects(), b'[\n{"a":1},\n{"b":"}\\" {"}\n]\n', b'{"a":1}\n{"b":"}\\" {"}\n'),
    (JsonObjects(), b'{"a":1}{"a":[1,{"x":2}]}\n{\n "q":3}\n[{}]', b'{"a":1}\n{"a":[1,{"x":2}]}\n{\r "q":3}\n{}\n'),
    (
        JsonObjects(records="Records"),
        b'{"x":{"Records":[{"no":1}]},"Records": [ {"a":1}, {"b":[{"c":2}]} ], "z":"Records"}\n{"Records":[]}',
        b'{"a":1}\n{"b":[{"c":2}]}\n',
    ),
    (
        JsonObjects(encoding="utf-16", records="R"),
        '\ufeff{"R":[{"a":"größe \U0001f600"},{"b":2}]}\n'.encode("utf-16-le"),
        '{"a":"größe \U0001f600"}\n{"b":2}\n'.encode(),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("framing", "data", "records"), JSON)
def test_json_objects_in_any_layout(framing: JsonObjects, data: bytes, records: bytes) -> None:
    assert made(framing, [data]) == (records, b"")
    for at in range(len(data)):
        assert made(framing, [data[:at], data[at:]]) == (records, b"")
    assert made(framing, [data[at : at + 1] for at in range(len(data))]) == (records, b"")


@pytest.mark.parametrize(
    ("records", "data", "said"),
    [
        ("", b'{"a":1} foo {"b":2}', "'foo ' between JSON objects"),
        ("", b"[1,2]", "'1,2' between JSON objects"),
        ("", b'[[{"a":1}]]', "an array where an object is expected"),
        ("", b'{"a":1}]', "']' closes nothing"),
        ("R", b'{"a":1}', "the object that ends here has no list 'R'"),
        ("R", b'[{"a":1}]', "an array where an object is expected"),
    ],
)
def test_what_is_no_such_json_is_named_behind_the_records_before_it(
    tmp_path: Path, records: str, data: bytes, said: str
) -> None:
    good = b'{"R":[{"ok":1}]}' if records else b'{"ok":1}'
    (tmp_path / "a.json").write_bytes(good + data)
    tail = Tail(tmp_path, framing=JsonObjects(records=records))
    assert tail.read()[0] == b'{"ok":1}'
    (problem,) = {str(each) for each in tail.problems}
    assert said.split(" ", 1)[1] in problem
