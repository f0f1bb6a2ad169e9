"""Defects of a night, one function each: plants it in a Day, and returns the expected report of a night."""

from __future__ import annotations

import gzip
import json
import shutil
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from photon.spark.classes import Class
from tests.spark.planted_day import BLOCKS, HOURS, LOGS, SITES, Day, Effect, Found, Line, text

Plant = Callable[[Day], Effect]


@dataclass(frozen=True, slots=True)
class Row:
    """``repaired``: after ``photon spark recover`` the next night does not report it."""

    name: str
    plant: Plant
    repaired: bool = False
    put_back: bool = False  # not by a repair: by the report's command, or from a copy


def _found(kind: Class, event: str, *places: Line | str) -> Found:
    return Found(str(kind), event, places)


def _lost(line: Line) -> Found:
    return _found(Class.LOST_CLEARED, line.event, line.log_place)


# -- lines -----------------------------------------------------------------------------------------------------------
def lost(choose: Callable[[Day], Line]) -> Plant:
    def plant(day: Day) -> Effect:
        line = choose(day)
        day.remove(line)
        return Effect([_lost(line)])

    return plant


def _first(day: Day) -> Line:
    return day.claim(min(day.all("joined"), key=lambda line: line.said["event_time_ns"]))


def _last(day: Day) -> Line:
    return day.claim(max(day.all("joined"), key=lambda line: line.said["event_time_ns"]))


def changed(change: Callable[[Line], None], kind: Class | None = Class.WRONGLY_JOINED, of: str = "joined") -> Plant:
    """A record with changed contents."""

    def plant(day: Day) -> Effect:
        line = day.take(of)
        before = line.data
        change(line)
        assert line.data != before
        return Effect([_found(kind, line.event, line)] if kind else [])

    return plant


def _foreign(line: Line) -> None:
    line.change(foreign=line.said["foreign"] | {"cost_micros": line.said["foreign"]["cost_micros"] + 1})


def _primary(line: Line) -> None:
    line.change(primary=line.said["primary"] | {"bid": 99})


def _later(by_ns: int) -> Callable[[Line], None]:
    return lambda line: line.change(event_time_ns=line.said["event_time_ns"] + by_ns)


def _file(line: Line) -> None:
    """A file of the hour before noon, which has other events."""
    other = f"{line.log.rpartition('T')[0]}T11.log"
    line.change(source=line.said["source"] | {"file": other})


def _offset(side: str) -> Callable[[Line], None]:
    return lambda line: line.change(**{side: line.said[side] | {"offset": line.said[side]["offset"] + 1}})


def _reordered(line: Line) -> None:
    line.data = text(dict(reversed(line.said.items())))


def _payload_reordered(line: Line) -> None:
    line.change(foreign=dict(reversed(line.said["foreign"].items())))


def source_gone(day: Day) -> Effect:
    """Names a log that never existed."""
    line = day.take()
    name = "queries-none.log"
    line.change(primary_source=line.said["primary_source"] | {"file": name})
    return Effect([_found(Class.LOG_GONE, line.event, line)], ("log-gone", name, 1))


def doubled(elsewhere: bool = False, of: str = "joined") -> Plant:
    """Doubled in its file, or in another one of the slot."""

    def plant(day: Day) -> Effect:
        line = day.take(of)
        other = line.site, day.name(line.site, of, (line.hour // HOURS + 1) % (BLOCKS // 2))
        again = day.insert(line, line.data, other if elsewhere else None)
        return Effect([_found(Class.DUPLICATED, line.event, line, again)])

    return plant


def doubled_across(day: Day) -> Effect:
    line = day.take(site="east")
    again = day.insert(line, line.data, ("west", day.name("west", "joined", line.hour // HOURS)))
    return Effect([_found(Class.DUPLICATED_ACROSS, line.event, line, again)])


def invented(day: Day) -> Effect:
    line = day.take()
    event = "10.9.9.9:1:" + "1" * 16
    new = day.insert(line, line.data.replace(line.event.encode(), event.encode()))
    return Effect([_found(Class.INVENTED, event, new)])


def inserted(data: bytes) -> Plant:
    """A line that is not a record."""

    def plant(day: Day) -> Effect:
        return Effect([_found(Class.TORN, "", day.insert(day.take(), data))])

    return plant


def half(day: Day) -> Effect:
    line = day.take()
    line.data = line.data[: len(line.data) // 2] + b"\n"
    return Effect([_lost(line), _found(Class.TORN, "", line)])


def moved_to_unmatched(day: Day) -> Effect:
    line = day.take()
    said = {name: line.said[name] for name in ("event_id", "key", "event_time_ns")}
    said |= {"reason": "no primary event has this key"}
    said |= {"record": text(line.said["foreign"]).decode().rstrip(), "source": line.said["source"]}
    said |= {"decided_at": line.said["joined_at"], "token": line.said["token"]}
    day.remove(line)
    new = day.insert(line, text(said), (line.site, day.name(line.site, "unmatched", line.hour // HOURS)))
    return Effect([_found(Class.PRIMARY_EXISTS, line.event, new), _found(Class.REGISTRY_DIFFERS, line.event, new)])


def swapped(across: bool) -> Plant:
    """Two lines of one file, or of two files of a slot: order means nothing."""

    def plant(day: Day) -> Effect:
        first, second = day.take(site="east"), day.take(site="east")
        if not across:
            second = next(line for line in day.files[first.site, first.file][1:] if day.is_free(line))
            day.claim(second)
        first.data, second.data = second.data, first.data
        return Effect()

    return plant


# -- files of the output ---------------------------------------------------------------------------------------------
def deleted(site: str, kind: str, block: int) -> Plant:
    def plant(day: Day) -> Effect:
        lines = day.of(site, kind, block)
        name = lines[0].file
        day.path(site, name).unlink()
        return Effect([*map(_lost, lines), _found(Class.TORN, "")], ("file-gone", f"{name}.gz", len(lines)))

    return plant


def cut(site: str, kind: str, block: int, keep: Callable[[bytes], bytes], packed: bool = False) -> Plant:
    """A file with only a first part left, of its content or of the compressed bytes."""

    def plant(day: Day) -> Effect:
        lines = day.of(site, kind, block)
        path = day.path(site, lines[0].file)
        if packed:
            path.write_bytes(keep(path.read_bytes()))
            kept = zlib.decompressobj(31).decompress(path.read_bytes())
        else:
            kept = keep(gzip.decompress(path.read_bytes()))
            path.write_bytes(gzip.compress(kept))
        gone = lines[kept.count(b"\n") :]
        assert 0 < len(gone) < len(lines)
        found = [*map(_lost, gone), _found(Class.TORN, "")]
        return Effect(found, ("file-damaged", f"{lines[0].file}.gz", len(gone)))

    return plant


def _without_last_lines(data: bytes) -> bytes:
    return b"".join(data.splitlines(keepends=True)[:-20])


def wrong_checksum(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-6] ^= 0xFF
    path.write_bytes(data)


def checksum(day: Day) -> Effect:
    name = day.of("west", "joined", 5)[0].file
    wrong_checksum(day.path("west", name))
    return Effect([_found(Class.TORN, "")], ("checksum-wrong", f"{name}.gz", 0))


def stale_manifest(day: Day) -> Effect:
    manifest, name = day.manifest("west"), day.of("west", "unmatched", 7)[0].file
    entries = manifest.read_bytes().splitlines(keepends=True)
    manifest.write_bytes(b"".join(each for each in entries if name.encode() not in each))
    return Effect(cause=("file-unnamed", name, 0))


def copied(day: Day) -> Effect:
    name = day.of("east", "joined", 7)[0].file
    copy = "joined/east-1-000077.jsonl"
    shutil.copy(day.path("east", name), day.path("east", copy))
    return Effect(cause=("file-unnamed", copy, 0))


def never_there(day: Day) -> Effect:
    entries = [json.loads(each) for each in day.manifest("east").read_bytes().splitlines()]
    (like,) = (each for each in entries if each["file"] == f"{day.of('east', 'unmatched', 7)[0].file}.gz")
    name = "rejected/east-1-000050.jsonl.gz"
    with day.manifest("east").open("ab") as file:
        file.write(text(like | {"file": name}))
    return Effect([_found(Class.TORN, "")], ("file-gone", name, 0))


# -- raw logs --------------------------------------------------------------------------------------------------------
def log_gone(side: str, hour: int, sites: Sequence[str]) -> Plant:
    """Deleted in these datacentres."""

    def plant(day: Day) -> Effect:
        source = "source" if side == "clicks" else "primary_source"
        (path,) = (day.root / sites[0] / side).glob(f"*T{hour:02}.log")
        own = [line for line in [*day.all("joined"), *day.all("unmatched")]
               if line.site in sites and line.said.get(source, {}).get("file") == path.name]  # fmt: skip
        assert own
        for site in sites:
            day.raw(site, side, path.name).unlink()
        return Effect([_found(Class.LOG_GONE, line.event, line) for line in own], ("log-gone", path.name, len(own)))

    return plant


def foreign_checksum(day: Day) -> Effect:
    (path,) = (day.root / "west" / "clicks").glob("*T21.log")
    packed = path.with_name(path.name + ".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    wrong_checksum(packed)
    path.unlink()
    return Effect(cause=("log-damaged", path.name, 0))


def foreign_corrupted(day: Day) -> Effect:
    line = day.take()
    day.change_raw(line.site, "clicks", line.log_place, b'{"click_id"', b'X"click_id"')
    unread = _found(Class.LOST_UNREADABLE, "", line.log_place)
    return Effect([unread, _found(Class.WRONGLY_JOINED, line.event, line)])


def primary_corrupted(day: Day) -> Effect:
    line = day.take()
    source = line.said["primary_source"]
    day.change_raw(line.site, "queries", f"{source['file']}:{source['offset']}", b'{"query_id"', b'X"query_id"')
    return Effect([_found(Class.SHOULD_BE_UNMATCHED, line.event, line)])


def primary_came(day: Day) -> Effect:
    line = day.take("unmatched")
    with day.raw(line.site, "queries", "queries-late.log").open("ab") as file:
        file.write(text({"query_id": line.said["key"], "bid": 1}))
    return Effect([_found(Class.PRIMARY_EXISTS, line.event, line)])


def other_id(day: Day) -> Effect:
    """The other datacentre's copy of the log has another event there, which is unknown elsewhere."""
    line = day.take(site="west")
    event = line.event[:-6] + "999999"
    day.change_raw("east", "clicks", line.log_place, line.event.encode(), event.encode())
    return Effect([_found(Class.LOST_UNREGISTERED, event, line.log_place)])


def harmless_names(day: Day) -> Effect:
    """Names next to logs and output files that are neither."""
    for site in SITES:
        for directory in ("clicks", "queries", "output/joined"):
            for name in ("_SUCCESS", ".part-0.crc", ".log.swp", "clicks.log~"):
                (day.root / site / directory / name).write_bytes(b"no record\n")
    return Effect()


HOUR_NS = 3_600_000_000_000
ROWS = [
    Row("first event of the day lost", lost(_first), repaired=True),
    Row("last event of the day lost", lost(_last), repaired=True),
    Row("joined line lost", lost(lambda day: day.take()), repaired=True),
    Row("unmatched line lost", lost(lambda day: day.take("unmatched")), repaired=True),
    Row("line doubled in its file", doubled()),
    Row("line doubled in another file of the slot", doubled(elsewhere=True)),
    Row("unmatched line doubled", doubled(of="unmatched")),
    Row("line also in the other datacentre", doubled_across),
    Row("foreign payload", changed(_foreign)),
    Row("primary payload", changed(_primary)),
    Row("time 1 ns later", changed(_later(1))),
    Row("time an hour later", changed(_later(HOUR_NS))),
    Row("time three days later", changed(_later(72 * HOUR_NS))),
    Row("another key", changed(lambda line: line.change(key=line.said["key"] + "0"))),
    Row("offset of the source", changed(_offset("source"))),
    Row("file of the source", changed(_file)),
    Row("offset of the primary", changed(_offset("primary_source"))),
    Row("file of the primary, which is none", source_gone),
    Row("bad UTF-8 in a payload", changed(lambda line: line.replace(b'"country":"', b'"country":"\xff'))),
    Row("a blank in a payload", changed(lambda line: line.replace(b'"position":', b'"position": '))),
    Row("another form of a number", changed(lambda line: line.replace(b'"position":', b'"position":0.0e0,"p":'))),
    Row("members of a payload reordered", changed(_payload_reordered)),
    Row("members of the record reordered", changed(_reordered, None)),
    Row("blanks between members", changed(lambda line: line.replace(b',"token":', b' , "token": '), None)),
    Row("another time of joining", changed(lambda line: line.change(joined_at="2020-01-01T00:00:00.000000Z"), None)),
    Row("lines swapped in a file", swapped(across=False)),
    Row("lines swapped between files", swapped(across=True)),
    Row("token of nobody", changed(lambda line: line.change(token="00000000000000ff"), Class.REGISTRY_DIFFERS)),
    Row("no token", changed(lambda line: line.change(token=None), Class.REGISTRY_DIFFERS)),
    Row("member added", changed(lambda line: line.replace(b',"token":', b',"campaign":"a","token":'))),
    Row("another reason", changed(lambda line: line.replace(b"event has", b"event had"), of="unmatched")),
    Row("record of an unmatched line", changed(lambda line: line.replace(b"cost_", b"cast_"), of="unmatched")),
    Row("invented line", invented),
    Row("joined record moved to unmatched", moved_to_unmatched),
    Row("garbage line", inserted(b"garbage\n"), repaired=True),
    Row("line of NUL bytes", inserted(b"\0" * 40 + b"\n"), repaired=True),
    Row("empty line", inserted(b"\n"), repaired=True),
    Row("half a line", half, repaired=True),
    Row("raw foreign line corrupted", foreign_corrupted),
    Row("raw primary line corrupted", primary_corrupted),
    Row("raw line of another event", other_id, repaired=True),
    Row("primary event came late", primary_came),
    Row("names that are no logs", harmless_names),
]
# Planted after the files were written.
FILES = [
    Row("joined file deleted", deleted("east", "joined", 4), repaired=True),
    Row("unmatched file deleted", deleted("east", "unmatched", 5), repaired=True),
    Row("file cut at a line", cut("east", "joined", 5, _without_last_lines), repaired=True),
    Row("file cut in a line", cut("west", "unmatched", 5, lambda data: data[:-30]), repaired=True),
    Row(".gz cut at half", cut("west", "joined", 4, lambda data: data[: len(data) // 2], packed=True), repaired=True),
    Row(".gz with a wrong checksum", checksum, put_back=True),
    Row("manifest without its last entry", stale_manifest, put_back=True),
    Row("file that no manifest names", copied, put_back=True),
    Row("manifest names a file that never was", never_there, repaired=True),
    Row("foreign log deleted everywhere", log_gone("clicks", LOGS * HOURS, SITES)),
    Row("foreign log deleted in one datacentre", log_gone("clicks", LOGS * HOURS + 1, ("east",))),
    Row("primary log deleted everywhere", log_gone("queries", LOGS * HOURS + 2, SITES)),
    Row("foreign .gz with a wrong checksum", foreign_checksum, put_back=True),
]
