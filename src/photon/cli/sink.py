"""``photon sink``: copies published records to other formats and systems."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from photon.cli.errors import DONE
from photon.cli.heads import PATH, PLACE, Deployed, added, deployed
from photon.cli.read import named_place
from photon.cli.tables import say
from photon.cli.units import DURATION, SIZE
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.config.output_kinds import KINDS
from photon.config.words import many

if TYPE_CHECKING:
    from photon.library import Batch
    from photon.sinks.transactions import Target

_NAME = click.option(
    "--name", default="photon", show_default=True,
    help="Name of this sink; unique among sinks of the target; do not change it later.",
)  # fmt: skip
_COMMIT_AGE = click.option(
    "--commit-age", type=DURATION, default="1s", show_default=True,
    help="Commit a batch this long after its first record, or at 8 MiB.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Published:
    """The published records that a sink reads, and the flag that stops it."""

    at: Deployed
    output: Path | None
    kinds: tuple[str, ...]
    follow: bool
    cleared_only: bool
    stop: threading.Event

    def batches(self, cursor: bytes | None, sleep: Callable[[float], object]) -> Iterator[Batch]:
        from photon.library import Output

        place = named_place(self.output, self.at.given, self.at.datacentre, follow=self.follow)
        return Output(place).batches(
            kinds=self.kinds, cursor=cursor, follow=self.follow, cleared_only=self.cleared_only,
            until=self.stop.is_set, sleep=sleep,
        )  # fmt: skip


def _published(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of a sink's input. The command gets ``source``, a _Published that signals stop."""
    import functools

    @functools.wraps(command)
    def headed(output: Path | None, kinds: tuple[str, ...], follow: bool, cleared_only: bool, at: Deployed,
               **given: Any) -> Any:  # fmt: skip
        from photon.config.stopping import stop_flag

        return command(source=_Published(at, output, kinds, follow, cleared_only, stop_flag()), **given)

    options = [
        click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, default=("joined",),
                     show_default=True, help="Kind of records; may be repeated."),
        click.option("--follow", is_flag=True, help="Wait for new records until SIGTERM."),
        click.option("--cleared-only", is_flag=True,
                     help="Only cleared records, which stay valid even if a slot is retired; slightly later."),
    ]  # fmt: skip
    head = deployed(required=False, unless=["output"], sets=False, help="Instead of OUTPUT: the deployment file.",
                    datacentre="With --config: datacentre of the output (default: the only one).")  # fmt: skip
    return added(head(headed), [click.argument("output", type=PLACE, required=False), *options])


@click.command()
@_published
@click.option("--into", type=PATH, required=True, metavar="DIR",
              help="Directory for KIND/NUMBER.parquet and manifest.jsonl, which lists the valid files.")  # fmt: skip
@click.option("--columns", type=click.Choice(["struct", "flat"]),
              help="Payloads as structs (foreign.amount), or a column each (foreign_amount). "
              "Default: as in DIR; structs in a new one.")  # fmt: skip
@click.option("--schema", "schema_file", type=PATH, metavar="FILE",
              help="TOML file with types of payload fields: [foreign] amount = \"float\". "
              "Default: as in DIR; inferred in a new one.")  # fmt: skip
@click.option("--partition", type=click.Choice(["hour"]),
              help="Use DIR/KIND/date=YYYY-MM-DD/hour=HH, by event time in UTC. Default: as in DIR.")  # fmt: skip
@click.option("--roll-size", type=SIZE, default="128MiB", show_default=True,
              help="Close a file after this many bytes of JSON Lines.")  # fmt: skip
@click.option("--roll-age", type=DURATION, default="10min", show_default=True,
              help="Close a file this long after its first record.")  # fmt: skip
def parquet(
    source: _Published,
    into: Path,
    columns: Literal["struct", "flat"] | None,
    schema_file: Path | None,
    partition: Literal["hour"] | None,
    roll_size: int,
    roll_age: float,
) -> int:
    """Write each record once into rolled Parquet files.

    Can be stopped at any moment and continued: records in files that the manifest does not list are written again.
    OUTPUT is an output of photon join. Requires pip install 'photon-join[parquet]'.

    \b
    Examples:
      photon sink parquet out/ --into lake/clicks
      photon sink parquet out/ --into lake/hours --partition hour --schema types.toml
      photon sink parquet --config photon.toml --datacentre east --into lake/east --follow --roll-age 1min
    Exit codes: 0 everything is written, or told to stop; 1 failed; 2 wrong usage.
    """
    import time

    from photon.sinks.parquet import Form, ParquetSink, pour
    from photon.sinks.rolling import RollLimits

    limits = RollLimits(roll_size, roll_age)
    form = Form(columns, partition, None if schema_file is None else _schema(schema_file))
    with ParquetSink(RealDisk(), into, source.kinds, limits, time.monotonic, form, say) as files:

        def idle(seconds: float) -> None:
            files.tick()
            source.stop.wait(seconds)

        written = pour(source.batches(files.cursor, idle), files)
    people = f"{many(written.records, 'record')} in {many(written.files, 'file')}"
    source.at.show({"files": written.files, "records": written.records}, people)
    return DONE


@click.command()
@_published
@click.option("--into", required=True, metavar="ADDRESS",
              help="postgresql://USER@HOST/DATABASE, or a form that libpq knows; give the password in PGPASSWORD "
              "or ~/.pgpass.")  # fmt: skip
@click.option("--table", required=True, help="TABLE or SCHEMA.TABLE; created if missing.")
@_NAME
@_COMMIT_AGE
def postgres(source: _Published, into: str, table: str, name: str, commit_age: float) -> int:
    """Write each record once into a table of PostgreSQL.

    Rows and cursor (table photon_sinks) are committed together. Can be stopped at any moment; with --follow, the
    server, too. OUTPUT is an output of photon join. Requires pip install 'photon-join[postgres]'.

    \b
    Examples:
      photon sink postgres out/ --into postgresql://billing@db/shop --table clicks
      photon sink postgres --config photon.toml --datacentre east --into service=shop --table clicks --follow
    Exit codes: 0 everything is written, or told to stop; 1 failed; 2 wrong usage.
    """
    from photon.config.passwords import check_password
    from photon.sinks.postgres import PostgresTarget

    check_password("--into", into)
    return _poured(source, lambda: PostgresTarget(into, table, name, source.kinds), commit_age, f"into {table}")


@click.command()
@_published
@click.option("--into", required=True, metavar="ADDRESS", help="kafka://HOST:PORT/TOPIC; the topic must exist.")
@click.option("--client", type=PATH, metavar="FILE",
              help="File of Kafka client properties named as in librdkafka: security.protocol=SSL.")  # fmt: skip
@_NAME
@_COMMIT_AGE
def kafka(source: _Published, into: str, client: Path | None, name: str, commit_age: float) -> int:
    """Write each record once into a Kafka topic.

    Its readers must read committed messages only.
    Records and cursor (topic TOPIC-photon-cursors) are written in one transaction. Can be stopped at any moment; with
    --follow, brokers, too. OUTPUT is an output of photon join. Requires pip install 'photon-join[kafka]'.

    \b
    Examples:
      photon sink kafka out/ --into kafka://localhost:9092/joined
      photon sink kafka --config photon.toml --datacentre east --into kafka://k1:9092,k2:9092/joined --follow
    Exit codes: 0 everything is written, or told to stop; 1 failed; 2 wrong usage.
    """
    from photon.config.topic_address import client_settings, topic_address
    from photon.sinks.kafka import KafkaTarget

    topic, settings = topic_address(into, "--into"), client_settings(client)
    return _poured(
        source, lambda: KafkaTarget(topic, name, source.kinds, settings), commit_age, f"into {topic.topic}"
    )


def _say(problem: str) -> None:
    """Prints a problem on standard error. An empty string means that the sink has recovered."""
    if problem:
        say(problem)


def _poured(source: _Published, connect: Callable[[], Target], commit_age: float, where: str) -> int:
    import time

    from photon.sinks.rolling import RollLimits
    from photon.sinks.transactions import COMMIT_BYTES, pour_into

    limits = RollLimits(COMMIT_BYTES, commit_age)
    records = pour_into(connect, source.batches, limits, wait=source.stop.wait, monotonic=time.monotonic, say=_say)
    source.at.show({"records": records}, f"{many(records, 'record')} {where}")
    return DONE


@click.command()
@click.argument("output", type=PATH, required=False)
@deployed(required=False, unless=["output"], sets=False, help="Instead of OUTPUT: the deployment file.",
          datacentre="With --config: datacentre of the output (default: the only one).")  # fmt: skip
@click.option(
    "--into",
    type=PLACE,
    required=True,
    metavar="URL",
    help="Write URL/KIND/SLOT-NUMBER.jsonl.gz, and URL/manifest.jsonl, which lists the valid files.",
)
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, default=("joined",), show_default=True,
              help="Kind of records; may be repeated.")  # fmt: skip
@click.option("--removable", is_flag=True,
              help="Write nothing; print the local final files that the manifest lists.")  # fmt: skip
@click.option("--follow", is_flag=True, help="Wait for new files until SIGTERM.")
def objects(
    at: Deployed, output: Path | None, into: Path, kinds: tuple[str, ...], removable: bool, follow: bool
) -> int:
    """Write output files and a manifest to an object store. Each file is written whole. Can be stopped at any moment
    and continued; nothing is written twice. With --follow, each file is written once it is final (output.roll_age);
    those unfinished when it stops are written then. Requires pip install 'photon-join[objects]'.

    \b
    Examples:
      photon sink objects out/ --into s3://lake/clicks
      photon sink objects --config photon.toml --datacentre east --into s3://lake/east --follow
      photon sink objects out/ --into s3://lake/clicks --removable | xargs -r rm
    Exit codes: 0 everything is written, or told to stop; 1 failed; 2 wrong usage.
    """
    import time

    from photon.config.stopping import stop_flag
    from photon.objects.costs import said
    from photon.objects.directory import counts
    from photon.objects.paths import ObjectPath
    from photon.sinks.objects import ObjectSink
    from photon.sinks.objects import follow as follow_output

    if not isinstance(into, ObjectPath):
        raise UsageError(f"--into {into}: is not the URL of an object store, such as s3://BUCKET/PREFIX")
    if removable and follow:
        raise UsageError("--removable and --follow cannot be combined")
    place = named_place(output, at.given, at.datacentre, follow=follow)
    stop, begun = stop_flag(), time.monotonic()

    sink = ObjectSink(RealDisk(), place, into, kinds)
    if removable:
        paths = [str(path) for path in sink.removable()]
        at.show({"removable": paths}, lambda: click.echo("".join(f"{path}\n" for path in paths), nl=False))
        return DONE
    if follow:
        follow_output(sink, stop.wait, _say)
    else:
        sink.pass_(all_of_it=True)
    say(said(counts(), time.monotonic() - begun))
    at.show({"files": sink.files, "bytes": sink.bytes}, f"{many(sink.files, 'file')}, {many(sink.bytes, 'byte')}")
    return DONE


def _schema(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"--schema {path}: {error}") from None
