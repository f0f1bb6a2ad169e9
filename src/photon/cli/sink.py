"""``photon sink``: what is published, in another form."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any, Literal

import click

from photon.cli.errors import DONE
from photon.cli.heads import PATH, PLACE, Deployed, deployed
from photon.cli.read import named_place
from photon.cli.units import DURATION, SIZE
from photon.config.output_kinds import KINDS

FOLLOW_S = 5.0
"""Between two looks at what has become final."""


@click.command()
@click.argument("output", type=PATH, required=False)
@deployed(required=False, unless=["output"], sets=False, help="Instead of OUTPUT: the deployment file.",
          datacentre="With --config: whose output; may be left out if there is one.")  # fmt: skip
@click.option("--into", type=PATH, required=True, metavar="DIR",
              help="For DIR/KIND/NUMBER.parquet, and DIR/manifest.jsonl, which names those that count.")  # fmt: skip
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, default=("joined",), show_default=True,
              help="Which records; may be given several times.")  # fmt: skip
@click.option("--follow", is_flag=True, help="Continue with new records, until SIGTERM.")
@click.option(
    "--cleared-only", is_flag=True, help="Only records that hold even if a slot is retired; a little later."
)
@click.option("--columns", type=click.Choice(["struct", "flat", "json"]),
              help="Payloads as structs (foreign.amount), a column each (foreign_amount), or JSON text. "
              "Not given: as DIR has them; of a new one structs.")  # fmt: skip
@click.option("--schema", "schema_file", type=PATH, metavar="FILE",
              help="TOML with types of the payloads, [foreign] amount = \"float\". "
              "Not given: as DIR has them; of a new one found.")  # fmt: skip
@click.option("--partition", type=click.Choice(["hour"]),
              help="DIR/KIND/date=YYYY-MM-DD/hour=HH of the event time, UTC. Not given: as DIR has it.")  # fmt: skip
@click.option("--roll-size", type=SIZE, default="128MiB", show_default=True,
              help="Close a file after this many bytes of JSON Lines.")  # fmt: skip
@click.option("--roll-age", type=DURATION, default="10min", show_default=True,
              help="Close a file this long after its first record.")  # fmt: skip
def parquet(
    at: Deployed,
    output: Path | None,
    into: Path,
    kinds: tuple[str, ...],
    follow: bool,
    cleared_only: bool,
    columns: Literal["struct", "flat", "json"] | None,
    schema_file: Path | None,
    partition: Literal["hour"] | None,
    roll_size: int,
    roll_age: float,
) -> int:
    """Write published records as rolled Parquet files, each record once.

    It may be ended at any moment and continues: what the manifest does not name is written again.
    OUTPUT is an output of photon join. Needs pip install 'photon-join[parquet]'.

    \b
    Examples:
      photon sink parquet out/ --into lake/clicks
      photon sink parquet out/ --into lake/hours --partition hour --schema types.toml
      photon sink parquet --config photon.toml --datacentre east --into lake/east --follow --roll-age 1min
    Exit codes: 0 all is written, or told to end; 1 failed, 2 wrong usage.
    """
    import time

    from photon.config.disk import RealDisk
    from photon.library import Output
    from photon.sinks.parquet import Form, ParquetSink, RollLimits, pour

    published = Output(named_place(output, at.given, at.datacentre))
    limits = RollLimits(roll_size, roll_age)
    form = Form(columns, partition, None if schema_file is None else _schema(schema_file))
    stop = _told_to_end()
    with ParquetSink(RealDisk(), into, kinds, limits, time.monotonic, form, _say) as files:

        def idle(seconds: float) -> None:
            files.tick()
            stop.wait(seconds)

        batches = published.batches(
            kinds=kinds, cursor=files.cursor, follow=follow, cleared_only=cleared_only, until=stop.is_set, sleep=idle
        )
        written = pour(batches, files)
    people = f"{written.records:,} records in {written.files:,} files"
    at.show({"files": written.files, "records": written.records}, people)
    return DONE


@click.command()
@click.argument("output", type=PATH, required=False)
@deployed(required=False, unless=["output"], sets=False, help="Instead of OUTPUT: the deployment file.",
          datacentre="With --config: whose output; may be left out if there is one.")  # fmt: skip
@click.option("--into", type=PLACE, required=True, metavar="URL",
              help="For URL/KIND/SLOT-NUMBER.jsonl.gz, and URL/manifest.jsonl, which says which count.")  # fmt: skip
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, default=("joined",), show_default=True,
              help="Which records; may be given several times.")  # fmt: skip
@click.option("--follow", is_flag=True, help="Continue with new files, until SIGTERM.")
def objects(at: Deployed, output: Path | None, into: Path, kinds: tuple[str, ...], follow: bool) -> int:
    """Write output files to an object store, each whole, and a manifest of those that count.

    It may be ended at any moment and continues: what is there is not written again. With --follow files come once
    they are final (output.roll_age), and what others hold at its end. Needs pip install 'photon-join[objects]'.

    \b
    Examples:
      photon sink objects out/ --into s3://lake/clicks
      photon sink objects --config photon.toml --datacentre east --into s3://lake/east --follow
    Exit codes: 0 all is written, or told to end; 1 failed, 2 wrong usage.
    """
    import time

    from photon.config.disk import RealDisk
    from photon.config.errors import UsageError
    from photon.objects.costs import said
    from photon.objects.directory import counts
    from photon.objects.paths import ObjectPath
    from photon.sinks.objects import ObjectSink

    if not isinstance(into, ObjectPath):
        raise UsageError(f"--into {into}: is no URL of an object store; write for instance s3://BUCKET/PREFIX")
    place = named_place(output, at.given, at.datacentre)
    stop, begun = _told_to_end(), time.monotonic()
    sink = ObjectSink(RealDisk(), place, into, kinds)
    while follow and not stop.is_set():
        sink.pass_()
        stop.wait(FOLLOW_S)
    sink.pass_(all_of_it=True)
    _say(said(counts(), time.monotonic() - begun))
    written = sink.mirrored
    at.show({"files": written.files, "bytes": written.bytes}, f"{written.files:,} files, {written.bytes:,} bytes")
    return DONE


def _told_to_end() -> threading.Event:
    """Set by SIGTERM and SIGINT."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _say(line: str) -> None:
    click.echo(f"photon: {line}", err=True)


def _schema(path: Path) -> dict[str, Any]:
    import tomllib

    from photon.config.errors import UsageError

    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"--schema {path}: {error}") from None
