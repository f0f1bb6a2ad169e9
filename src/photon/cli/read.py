"""``photon read``: prints the records of an output as they are published."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import PATH, PLACE
from photon.cli.heads import config as config_option
from photon.cli.tables import say
from photon.config.errors import UsageError
from photon.config.output_kinds import KINDS
from photon.config.words import many

if TYPE_CHECKING:
    from photon.outputs import Cursor, OutputBlock, OutputPlace, Reader
    from photon.outputs.cursor import CursorFile
    from photon.outputs.streaming import StreamTerms


@click.command()
@click.argument("output", type=PLACE, required=False)
@config_option(required=False, unless=["output"], help="Instead of OUTPUT: the deployment file.")
@click.option("--datacentre", metavar="NAME", help="With --config: datacentre of the output (default: the only one).")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, default=("joined",), show_default=True,
              help="Kind of records; may be repeated.")  # fmt: skip
@click.option("--follow", is_flag=True, help="Wait for new records until SIGTERM.")
@click.option("--cursor", "cursor_file", type=PATH, metavar="FILE",
              help="Start at the cursor in FILE, and keep it up to date.")  # fmt: skip
@click.option("--with-cursor", is_flag=True, help="Print the cursor at the start, and after each block of records.")
@click.option("--with-watermark", is_flag=True,
              help="Print the watermark when it moves and all records are read.")  # fmt: skip
@click.option("--from", "begin", default="beginning", metavar="beginning|end|CURSOR", show_default=True,
              help="Where to start; CURSOR is a line printed by --with-cursor.")  # fmt: skip
@click.option(
    "--cleared-only",
    is_flag=True,
    help="Only cleared records, which stay valid even if a slot is retired; slightly later.",
)
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="End after N records.")
@click.option("-o", "output_format", type=click.Choice(["json", "table"]), default="json", show_default=True,
              help="json: the records as published; table: one readable line each.")  # fmt: skip
def read(
    output: Path | None, config: Path | None, datacentre: str | None, kinds: tuple[str, ...], follow: bool,
    cursor_file: Path | None, with_cursor: bool, with_watermark: bool, begin: str, cleared_only: bool,
    limit: int | None, output_format: str,
) -> int:  # fmt: skip
    """Print the records of an output, each exactly once from one cursor to the next.

    Reads only published records, which no crash can take back. OUTPUT is an output of photon join, or a URL under
    which photon sink objects has published one.

    \b
    Examples:
      photon read out/ --kind unmatched
      photon read out/ --follow --cursor billing.cursor >> billing.jsonl
      photon read s3://lake/clicks --follow --cursor billing.cursor >> billing.jsonl
      photon read --config photon.toml --datacentre east --follow --with-cursor | load-into-database
    Exit codes: 0 all records were read, the limit was reached, or ended by a signal; 3 the verifier objects to some
    files (with --cleared-only), or OUTPUT is a replayed stream, whose end names its successor; 1 failed; 2 wrong
    usage.
    """
    from photon.objects.disk import UrlDisk
    from photon.outputs import Reader
    from photon.outputs.cursor import CursorFile
    from photon.outputs.streaming import StreamTerms

    if with_cursor and (cursor_file is not None or output_format == "table"):
        other = "--cursor" if cursor_file is not None else "-o table"
        raise UsageError(f"--with-cursor and {other} cannot be combined: the cursor is in the stream, or in a file")
    if with_watermark and output_format == "table":
        raise UsageError("--with-watermark and -o table cannot be combined")
    place = named_place(output, config, datacentre, follow=follow)
    watermark = _watermarks(place, kinds, config, datacentre) if with_watermark else lambda cursor: b""
    kept = CursorFile(UrlDisk(), cursor_file) if cursor_file is not None else None
    try:
        start = _start(place, kept, begin)
        reader = Reader(UrlDisk(), place, kinds, cursor=start, cleared_only=cleared_only)
        terms = StreamTerms(follow=follow, limit=limit, with_cursor=with_cursor)
        return _pass_on(reader, start, kept, terms, watermark, as_table=output_format == "table")
    finally:
        if kept is not None:
            kept.close()


def named_place(
    output: Path | None, config: Path | None, datacentre: str | None, *, follow: bool = False
) -> OutputPlace:
    """Returns the place given by OUTPUT, or by --config and --datacentre. With ``follow``, the output need not exist
    yet. Raises UsageError, ConfigError."""
    from photon.outputs.output_places import NotBegun

    try:
        return _named_place(output, config, datacentre)
    except NotBegun as not_begun:
        if not follow:
            raise
        say(f"{not_begun}; waiting until there is an output")
        return not_begun.place


def _named_place(output: Path | None, config: Path | None, datacentre: str | None) -> OutputPlace:
    from photon.outputs.mirrored import place_at

    if config is None:
        if datacentre is not None:
            raise UsageError("--datacentre requires --config FILE")
        if output is None:
            raise UsageError("give an output of photon join, or --config FILE")
        return place_at(output)
    if output is not None:
        raise UsageError("give either OUTPUT or --config")
    from photon.library.output import output_place

    return output_place(config, datacentre)


def _start(place: OutputPlace, kept: CursorFile | None, begin: str) -> Cursor:
    from photon.objects.disk import UrlDisk
    from photon.outputs import Cursor

    found = kept.load() if kept is not None else None
    if found is not None:
        return found
    if begin == "end":
        start = place.end(UrlDisk())
    elif begin == "beginning":
        start = Cursor()
    elif begin.startswith("{"):
        start = Cursor.decode(begin.encode("utf-8", "surrogateescape"), "--from")
    else:
        raise UsageError(f"--from {begin}: must be beginning, end, or a cursor (which starts with {{)")
    if kept is not None:
        kept.save(start)  # so that the next call starts at the end as it is now
    return start


def _watermarks(
    place: OutputPlace, kinds: Sequence[str], config: Path | None, datacentre: str | None
) -> Callable[[Cursor], bytes]:
    """Returns a function that reads watermarks from the output's journal, or from the datacentre's verifier if the
    journal is on another machine. Raises UsageError."""
    from photon.config.disk import RealDisk
    from photon.objects.paths import ObjectPath
    from photon.outputs.watermarks import WatermarkTail

    if isinstance(place.output, ObjectPath):
        raise UsageError(f"--with-watermark: {place.output} has no watermark; read the original output")
    if config is None or place.state.is_dir():
        moved = WatermarkTail(RealDisk(), place.state, kinds).moved
    else:
        import os

        from photon.config.loader import load
        from photon.config.tls import OPERATOR
        from photon.fleet.access import pipeline_named, tls_of
        from photon.fleet.watermarks import VerifierTail

        settings = load(config, environment=os.environ)
        tls = tls_of(settings, config.parent, OPERATOR)
        name = pipeline_named(settings, datacentre)[0]
        moved = VerifierTail(settings, name, tls, kinds, say).moved

    def line(cursor: Cursor) -> bytes:
        pair = moved(cursor)
        return b"" if pair is None else pair.encode() + b"\n"

    return line


def _pass_on(
    reader: Reader,
    start: Cursor,
    kept: CursorFile | None,
    terms: StreamTerms,
    watermark: Callable[[Cursor], bytes],
    *,
    as_table: bool,
) -> int:
    from photon.cli.read_sink import OutputSink, Signals
    from photon.outputs.streaming import Stream

    objected = 0

    def tell(held_back: dict[str, int]) -> None:
        nonlocal objected
        objected += len(held_back)
        for name, lines in held_back.items():
            counted = many(lines, "line")
            say(f"{name}: not read further, because the verifier objects to {counted} of it (docs/verification.md)")

    descriptor = sys.stdout.fileno()
    signals = Signals(descriptor)
    sink = OutputSink(descriptor, signals)
    stream = Stream(
        reader, start, sink, signals, terms,
        save=kept.save if kept is not None else lambda cursor: None,
        monotonic=time.monotonic,
        render=table if as_table else None,
        tell=tell,
        watermark=watermark,
    )  # fmt: skip
    try:
        if as_table:
            sink.write(f"{HEADER}\n".encode())
        stream.run()
    except BrokenPipeError:
        return DONE  # the output's reader has enough
    if reader.replayed is not None and not signals.asked and stream.lines != terms.limit:
        say(str(reader.replayed))
        return ATTENTION
    return ATTENTION if objected else DONE


# -- table -----------------------------------------------------------------------------------------------------------
HEADER = f"{'kind':<10}{'event time':<28}{'written':<28}event  <-  source"


def table(block: OutputBlock) -> bytes:
    from photon.outputs import decode

    found = decode(block.data, block.start)
    rows = []
    for row in range(len(found.offset)):
        if found.torn[row] is not None:
            rows.append(f"{block.place.kind:<10}{block.name}:{found.offset[row]}: {_shown(found.torn[row])}")
            continue
        event = _shown((found.event_id[row] or b"").decode("utf-8", "backslashreplace"))
        reason = found.reason[row]
        why = f"  ({_shown(reason)})" if reason is not None else ""
        source = f"{_shown(found.source_file[row])}:{found.source_offset[row]}"
        times = f"{_time(found.event_time_ns[row]):<28}{found.written_at[row] or '':<28}"
        rows.append(f"{block.place.kind:<10}{times}{event or '-'}  <-  {source}{why}")
    return "".join(f"{row}\n" for row in rows).encode("utf-8", "backslashreplace")


def _shown(text: str | None) -> str:
    """Escapes control characters: records come from anywhere and must not control a terminal."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text or "")


def _time(ns: int | None) -> str:
    if ns is None:
        return ""
    try:
        moment = datetime.fromtimestamp(ns // 10**9, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{ns} ns"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ns % 10**9 // 1000:06d}Z"
