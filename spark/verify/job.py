"""Runs the verification as Spark SQL: narrow rows of all inputs, one hash aggregate by id, and a closer look at
suspect ids. The driver receives nothing as large as the input. The fresh join is foreign x primary on the key, with
the primary side made unique first; Spark splits a key with millions of foreign events (AQE's skew join). Everything
else is combined by one aggregate of fixed width over narrow rows: ids that are certainly correct are counted and
dropped; only the rest is listed and classified (``classify.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.functions import col, lit

from photon.adapters.contract import Adapter
from photon.eventstore.api import SET_MAX
from photon.spark.classes import Class
from photon.spark.key_filter import KeyFilter, filter_of
from photon.spark.primary_sets import keys_named, versions, whole_sets
from photon.spark.verify.causes import Attributed, LogGroup, LostGroup, UnnamedLines
from photon.spark.verify.classify import FILTERED, LATE, REJECTED, REOPENED, UNMATCHED, UNREADABLE, KnownLogs
from photon.spark.verify.days import merged
from photon.spark.verify.figures import ClassCount
from photon.spark.verify.findings import FOUND, findings_of
from photon.spark.verify.fresh import FOREIGN, PRIMARY, lines_of
from photon.spark.verify.narrow_rows import ENTRY, GIVEN_UP, LINE, NARROW, RECORD, TORN, UNNAMED, WAITING
from photon.spark.verify.row_totals import RowTotals, row_totals

LISTED_MAX = 64  # rows of each role that are listed of one id; more are only counted
PAIRS_LISTED_MAX = 4 * SET_MAX  # likewise for pairs of an event: a few whole sets
SUSPECTS_BROADCAST_MAX = 100_000  # with more suspect ids than this, a shuffle brings them together with their rows
GOOD = (str(Class.CORRECT), str(Class.LATE), str(Class.PENDING))
NAMES = [column.split()[0] for column in NARROW.split(", ")]
TYPES = dict(column.split() for column in NARROW.split(", "))


@dataclass(frozen=True, slots=True)
class VerifyInputs:
    """The inputs, as DataFrames of ``spark/schemas.py``."""

    foreign: DataFrame
    primary: Callable[[KeyFilter], DataFrame]  # returns records of at least these keys
    output: DataFrame
    registry: DataFrame | None
    waiting: DataFrame | None = None  # ``digest binary``: of the dispatchers' retry stores
    # ``datacentre string, output_file string, output_offset bigint``: unmatched lines that an operator gave up
    given_up: DataFrame | None = None
    # ``datacentre string, identity string, read_to bigint``: the dispatchers' read positions, a row per log
    places: DataFrame | None = None
    places_of: tuple[str, ...] = ()  # datacentres whose dispatchers' positions are known
    # ``datacentre string, log string`` (without rotation suffix): the foreign logs that were read. None means all.
    opened: DataFrame | None = None
    unnamed: Collection[tuple[str, str]] = ()  # (datacentre, file) of output files that no manifest names
    logs: Callable[[], KnownLogs | None] = lambda: None  # returns the known raw logs; called once all are read
    # (datacentre, file) -> offset at which the new part of an output file begins
    since: Mapping[tuple[str, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VerifyQuestion:
    """The range to verify, [``from_hour``, ``to_hour``) in hours since 1970."""

    from_hour: int
    to_hour: int
    datacentres: tuple[str, ...]
    make_adapter: Callable[[], Adapter]
    exported_at: str | None = None  # UTC as in the outputs: when the registry's export began
    boundary_ns: int | None = None
    parts: tuple[tuple[int, int], ...] = ()  # only these hours of the range; empty: all of it


@dataclass(slots=True)
class Verification:
    """The results of a verification. Its DataFrames stay cached in Spark until ``close``."""

    rows: DataFrame  # NARROW, of everything
    totals: RowTotals
    found: DataFrame  # FOUND, of all suspects and torn lines, including those that turn out correct
    counts: list[ClassCount]  # of every id; its size depends on the range, not on the input
    kept: list[DataFrame] = field(default_factory=list)

    def lost(self, hours: Column) -> dict[LostGroup, int]:
        """Counts lost records by their owner's slot. ``hours``: a condition on the column ``hour``."""
        kinds = col("class").isin(str(Class.LOST_CLEARED), str(Class.LOST_OWNED))
        group: list[Column | str | int] = ["datacentre", _said("slot"), _said("kind"), "hour"]
        rows = self.found.where(kinds & hours).groupBy(*group).count().collect()
        return {LostGroup(*row[:4]): row["count"] for row in rows if None not in row[:3]}

    def logs_gone(self, hours: Column) -> dict[LogGroup, int]:
        """Counts records whose source log is missing."""
        group: list[Column | str | int] = [_said("side"), "datacentre", _said("log"), _said("elsewhere") == "true"]
        rows = self.found.where((col("class") == str(Class.LOG_GONE)) & hours).groupBy(*group).count().collect()
        return {LogGroup(*row[:4]): row["count"] for row in rows}

    def broken(self) -> list[tuple[str, str, str]]:
        """Returns the incomplete output files: (datacentre, file, reason)."""
        files = self.found.where((col("class") == str(Class.TORN)) & (_said("file") == "true"))
        rows = files.select("datacentre", "output_file", _said("why")).distinct().collect()
        return [(row[0], row[1], row[2]) for row in rows]

    def unnamed(self, hours: Column) -> dict[tuple[str, str], UnnamedLines]:
        """Counts the lines of each unlisted (datacentre, file). ``hours``: a condition for the verified hours."""
        rows = self.rows.where(col("role") == RECORD).withColumn("wanted", hours & col("judged"))
        alone = sql.coalesce(col("state") == UNNAMED, lit(False))
        named = rows.where(~alone).select("digest", lit(1).alias("named")).distinct()
        joined = rows.where(alone).join(named, "digest", "left").groupBy("datacentre", "file")
        conditions = ("wanted", "wanted AND named IS NOT NULL", "NOT wanted")
        other = sql.when(~col("wanted"), col("hour"))
        counts = joined.agg(*(sql.count_if(sql.expr(each)) for each in conditions), sql.min(other), sql.max(other))
        return {(row[0], row[1]): UnnamedLines(*row[2:7]) for row in counts.collect()}

    def problems(self) -> DataFrame:
        """Returns the findings as rows of PROBLEM."""
        return self.found.where(~col("class").isin(*GOOD))

    def close(self) -> None:
        """Releases data cached by Spark."""
        for each in self.kept:
            each.unpersist()


def _said(name: str) -> Column:
    """Returns a member of the evidence."""
    return sql.get_json_object("evidence", f"$.{name}").alias(name)


def with_causes(problems: DataFrame, attributed: Attributed) -> DataFrame:
    """Adds the member ``cause`` to the evidence of findings that are attributed to a cause."""
    if not attributed:
        return problems
    spark = problems.sparkSession
    names = "datacentre string, _slot string, _kind string, hour bigint, _cause string"
    known = sql.broadcast(spark.createDataFrame([(*group, why) for group, why in attributed.items()], names))
    same = (
        problems["datacentre"].eqNullSafe(known["datacentre"]) & problems["hour"].eqNullSafe(known["hour"])
        & (_said("slot") == known["_slot"]) & (_said("kind") == known["_kind"])
        & problems["class"].isin(str(Class.LOST_CLEARED), str(Class.LOST_OWNED))
    )  # fmt: skip
    member = sql.expr(
        "concat(left(evidence, length(evidence) - 1), ',', substr(to_json(struct(_cause AS cause)), 2))"
    )
    evidence = sql.when(known["_cause"].isNotNull(), member).otherwise(problems["evidence"])
    others = [problems[name] for name in problems.columns if name != "evidence"]
    return problems.join(known, same, "left").select(*others, evidence.alias("evidence"))


def verify(inputs: VerifyInputs, question: VerifyQuestion) -> Verification:
    """Runs the verification. Expensive results are computed once and cached until ``close``."""
    kept: list[DataFrame] = []
    foreign = _kept(_with_unread(inputs), kept)
    rows = _kept(_narrow_rows(inputs, foreign, question), kept)
    totals = row_totals(rows, inputs.since)
    groups = _kept(_groups(rows, question, registry=inputs.registry is not None), kept)
    counts, suspected = Counter[tuple[int | None, str | None, str]](), 0
    for hour, datacentre, right, count in groups.groupBy("hour", "datacentre", "right").count().collect():
        if right:
            counts[hour, datacentre, str(Class.CORRECT)] += count
        else:
            suspected += count
    found = _torn(rows)
    if suspected:
        suspects = groups.where(~col("right")).select("digest", "lines", "records")
        if suspected <= SUSPECTS_BROADCAST_MAX:
            suspects = sql.broadcast(suspects)  # Spark itself would see their number only after shuffling all rows
        run = findings_of(registry=inputs.registry is not None, boundary_ns=question.boundary_ns, logs=inputs.logs())
        listed = _listed(rows.join(suspects, "digest"), run)
        found = listed.unionByName(found) if totals.torn else listed
    if suspected or totals.torn:
        found = _kept(found, kept)
        for hour, datacentre, kind, count in found.groupBy("hour", "datacentre", "class").count().collect():
            counts[hour, datacentre, kind] += count  # suspects may turn out correct too
    classes = [ClassCount(hour, at, Class(kind), count) for (hour, at, kind), count in counts.items()]
    return Verification(rows, totals, found, classes, kept)


def _kept(frame: DataFrame, kept: list[DataFrame]) -> DataFrame:
    # Not in memory: Spark reloads evicted data a whole partition at once, which grows with the input.
    frame = frame.persist(StorageLevel.DISK_ONLY)
    kept.append(frame)
    return frame


# -- narrow rows -------------------------------------------------------------------------------------------------
def _narrow_rows(inputs: VerifyInputs, foreign: DataFrame, question: VerifyQuestion) -> DataFrame:
    parts = [_lines(inputs, foreign, question), _outside(foreign, question), _records(inputs, question)]
    if inputs.registry is not None:
        parts.append(_entries(inputs.registry, question))
    if inputs.waiting is not None:
        parts.append(_shaped(inputs.waiting, {"digest": col("digest"), "role": lit(WAITING)}))
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.unionByName(part, allowMissingColumns=True)
    return rows


def _shaped(frame: DataFrame, columns: dict[str, Column]) -> DataFrame:
    """Casts these columns to their types in NARROW; Spark's union adds the others as null."""
    return frame.select(*(columns[name].cast(kind).alias(name) for name, kind in TYPES.items() if name in columns))


def _in_range(question: VerifyQuestion) -> Column:
    return col("hour").isNull() | within(question.parts or [(question.from_hour, question.to_hour)])


def within(parts: Iterable[tuple[int, int]]) -> Column:
    """True if the column ``hour`` is in one of these ranges."""
    found = [f"hour >= {begin} AND hour < {end}" for begin, end in merged(parts)]
    return sql.expr(" OR ".join(found) or "false")  # Spark's parser balances the expression; a call per range is slow


def _with_unread(inputs: VerifyInputs) -> DataFrame:
    """Returns the foreign records, with the flag ``unread`` for records beyond their dispatcher's position, if that
    is known."""
    foreign = inputs.foreign
    if inputs.places is None:
        return foreign.withColumn("unread", lit(False))
    known = col("datacentre").isin(*inputs.places_of)
    unread = known & (col("offset") >= sql.coalesce(col("read_to"), lit(0)))
    joined = foreign.join(sql.broadcast(inputs.places), ["datacentre", "identity"], "left")
    return joined.withColumn("unread", unread).drop("read_to")


def _outside(foreign: DataFrame, question: VerifyQuestion) -> DataFrame:
    """Returns lines outside the range, with only the columns needed to show that they exist."""
    columns: dict[str, Column] = {
        name: col(name) for name in ("digest", "datacentre", "offset", "event_time_ns", "hour", "event_id", "key")
    }
    columns |= {"role": lit(LINE), "judged": lit(False), "kind": lit(UNMATCHED), "log": col("log")}
    return _shaped(foreign.where(~_in_range(question)), columns | {"name": col("log")})


def _lines(inputs: VerifyInputs, foreign: DataFrame, question: VerifyQuestion) -> DataFrame:
    """Runs the fresh join. Returns a line of NARROW for each foreign record of the range."""
    run = lines_of(question.make_adapter, question.from_hour, question.to_hour)
    wanted = foreign.where(_in_range(question))
    if question.make_adapter().several_keys:
        wanted = _listed_keys(wanted, question).select(col("named").alias("key"))
    primary = inputs.primary(filter_of(wanted))
    return pairs(primary, foreign, question).mapInArrow(run, NARROW)


def pairs(primary: DataFrame, foreign: DataFrame, question: VerifyQuestion) -> DataFrame:
    """Returns each foreign record of the range with the primary record of its key, or with all of them
    (``fresh.PRIMARY``)."""
    wanted = foreign.where(_in_range(question)).withColumn("named", sql.xxhash64("key"))
    adapter = question.make_adapter()
    sets = adapter.matching.whole_sets
    by = ["datacentre", "key", "named"]
    if adapter.matching.match == "latest":
        by = [*by, "event_time_ns"]
        asked = wanted.where(col("key").isNotNull()).select("datacentre", "key", "event_time_ns").distinct()
        columns = ("p_record", "p_name", "p_header")
        found = versions(
            _named_primaries(primary), asked, ("datacentre", "key"), _ORDER, columns, question.make_adapter
        )
    else:
        lists = _listed_keys(wanted, question) if adapter.several_keys else None
        found = _primary_sets(primary, lists) if sets else _first_primaries(primary)
    place = _place_digest(col("datacentre"), col("name"), col("offset"))
    # ``named`` follows from the key. It is a join column because the primaries are partitioned by their key alone:
    # this forces a shuffle of the join's own on both sides, and Spark splits hot keys only in such shuffles.
    joined = wanted.withColumn("digest", sql.coalesce(col("digest"), place)).join(
        found.withColumn("named", sql.xxhash64("key")), by, "left"
    )
    primaries = ("primaries",) if sets else PRIMARY
    return joined.select(*(column.split()[0] for column in FOREIGN.split(", ")), *primaries)


def _named_primaries(primary: DataFrame) -> DataFrame:
    """Returns primary records with the columns PRIMARY and ``p_identity``."""
    return primary.select(
        "datacentre", "key", col("name").alias("p_log"), col("identity").alias("p_identity"),
        col("offset").alias("p_offset"), col("log").alias("p_name"), col("header").alias("p_header"),
        col("record").alias("p_record"),
    )  # fmt: skip


_ORDER = ("p_log", "p_identity", "p_offset")


def _first_primaries(primary: DataFrame) -> DataFrame:
    """Returns, for each key, the primary record that wins in its datacentre."""
    each = sql.struct(*_ORDER, "p_name", "p_header", "p_record")
    first = _named_primaries(primary).groupBy("datacentre", "key").agg(sql.min(each).alias("first"))
    return first.select("datacentre", "key", *(f"first.{name}" for name in PRIMARY))


def _listed_keys(wanted: DataFrame, question: VerifyQuestion) -> DataFrame:
    """Returns each key that the foreign records list (``named``), and its place ``at`` in the list ``key``."""
    lists = wanted.where(col("key").isNotNull()).select("datacentre", "key").distinct()
    return keys_named(lists, question.make_adapter)


def _primary_sets(primary: DataFrame, lists: DataFrame | None) -> DataFrame:
    """Returns, for each key or list of keys, all its primary records in a datacentre."""
    each, by = _named_primaries(primary), ("datacentre", "key")
    if lists is None:
        return whole_sets(each, by, _ORDER, "p_record")
    listed = each.withColumnRenamed("key", "named").join(lists, ["datacentre", "named"]).drop("named")
    return whole_sets(listed, by, ("at", *_ORDER), "p_record")


def _records(inputs: VerifyInputs, question: VerifyQuestion) -> DataFrame:
    output = inputs.output
    judged = _in_range(question)
    if inputs.opened is not None:
        opened = inputs.opened.withColumn("opened", lit(True))
        output = output.join(sql.broadcast(opened), ["datacentre", "log"], "left")
        judged = judged & (col("hour").isNotNull() | col("opened").isNotNull())
    given_up = lit(None)
    if inputs.given_up is not None:
        marks = inputs.given_up.select("datacentre", *_AT).distinct().withColumn("given_up", lit(GIVEN_UP))
        output = output.join(sql.broadcast(marks), _same_place(output, marks), "left").drop(marks["datacentre"])
        given_up = col("given_up")
    if inputs.unnamed:
        files = output.sparkSession.createDataFrame(sorted(inputs.unnamed), "datacentre string, file string")
        output = output.join(sql.broadcast(files.withColumn("unnamed", lit(UNNAMED))), ["datacentre", "file"], "left")
        given_up = sql.coalesce(col("unnamed"), given_up)
    fresh = lit(False)
    if question.exported_at is not None:
        fresh = sql.coalesce(col("written_at") >= lit(question.exported_at), lit(False))
    columns: dict[str, Column] = {
        name: col(name)
        for name in ("datacentre", "log", "kind", "file", "token", "event_time_ns", "hour", "key", "pair", "pairs",
                     "primary_log", "added")
    }  # fmt: skip
    columns |= {
        "digest": sql.coalesce(col("digest"), _place_digest(col("datacentre"), col("log"), col("source_offset"))),
        "role": sql.when(col("torn").isNull(), RECORD).otherwise(TORN),
        "name": col("torn"),
        "event_id": sql.coalesce("event_id", "line"),
        "kind": sql.when((col("kind") == "joined") & col("reason").isNotNull(), UNMATCHED).otherwise(col("kind")),
        "judged": judged,
        "offset": col("source_offset"),
        "file_offset": col("offset"),
        "foreign": _hash(sql.coalesce(col("record"), col("foreign"))),
        "primary": _hash(col("primary")),
        "primary_offset": col("primary_offset"),
        "fresh": fresh,
        "state": given_up,
    }
    gives_reason = columns["kind"].isin(UNMATCHED, FILTERED)
    columns["reason"] = sql.when(gives_reason, _hash(col("reason").cast("binary")))
    said = ("pair", "pairs", "foreign", "primary", "primary_log", "primary_offset")
    of_pair = sql.xxhash64(sql.concat_ws("\0", *(columns[name].cast("string") for name in said)))
    return _shaped(output, columns | {"pairs_hash": sql.when(col("pairs").isNotNull(), of_pair)})


_AT = ("output_file", "output_offset")


def _same_place(output: DataFrame, places: DataFrame) -> Column:
    """True if an output line is at one of ``places``."""
    return (
        (output["datacentre"] == places["datacentre"])
        & (output["file"] == places["output_file"])
        & (output["offset"] == places["output_offset"])
    )


def _entries(registry: DataFrame, question: VerifyQuestion) -> DataFrame:
    names = ("digest", "token", "event_time_ns", "hour", "kind", "state", "slot", "generation", "datacentre")
    columns = {name: col(name) for name in names}
    columns |= {"role": lit(ENTRY), "judged": _in_range(question), "retired": col("slot_retired")}
    return _shaped(registry, columns)


def _is_file() -> Column:
    """True if a torn row is about a whole file, not a line."""
    return col("event_id").isNull()


def _torn(rows: DataFrame) -> DataFrame:
    output = rows.where(col("role") == TORN)
    line = sql.substring(sql.base64("event_id"), 1, 400).alias("line_base64")
    columns = {
        "datacentre": col("datacentre"),
        "class": lit(str(Class.TORN)),
        "output_file": col("file"),
        "output_offset": col("file_offset"),
        "evidence": sql.to_json(sql.struct(col("name").alias("why"), col("kind"), line, _is_file().alias("file"))),
    }
    kinds = dict(column.split() for column in FOUND.split(", "))
    return output.select(*(columns.get(name, lit(None)).cast(kind).alias(name) for name, kind in kinds.items()))


def _hash(value: Column) -> Column:
    """Hashes a payload; null stays null."""
    return sql.when(value.isNotNull(), sql.xxhash64(value))


def _place_digest(datacentre: Column, log: Column, offset: Column) -> Column:
    """Makes a digest for a record without an id: 16 bytes from its place."""
    return sql.unhex(sql.md5(sql.concat_ws("\0", datacentre, log, offset.cast("string"))))


# -- one aggregate by id -----------------------------------------------------------------------------------------
def _groups(rows: DataFrame, question: VerifyQuestion, *, registry: bool) -> DataFrame:
    """Returns for every id of the range its digest, hour, datacentre, numbers of lines and records, and ``right``:
    true if it is certainly correct. Aggregates only numbers, so that Spark uses a hash aggregate of fixed width."""
    is_line, is_record = col("role") == LINE, (col("role") == RECORD) & (col("kind") != LATE)
    is_entry = col("role") == ENTRY
    number = sql.array_position(lit(list(question.datacentres)), col("datacentre"))
    content = _content()
    # Unique: token, kind, time and owner of an entry equal those of its record.
    deed = sql.xxhash64("token", "kind", "event_time_ns", "datacentre")
    columns = [
        sql.count_if(is_line).alias("lines"),
        sql.count_if(is_line & col("judged")).alias("judged_lines"),
        sql.count_if(is_line & (col("kind") == UNREADABLE)).alias("unreadable"),
        sql.count_if(is_line & (col("kind") != UNMATCHED)).alias("has_primary"),
        sql.count_if(is_record).alias("verdicts"),
        sql.count_if(is_entry).alias("entries"),
        sql.count_if(col("judged") & ~is_line).alias("judged_others"),
        sql.max(sql.when(is_line, col("hour"))).alias("hour"),
        sql.max(sql.when(is_record, number)).alias("number"),
        sql.max(sql.when(is_record, content)).alias("written"),
        sql.min(sql.when(is_record, content)).alias("least_written"),
        sql.bit_xor(sql.when(is_record, col("pairs_hash"))).alias("pairs_hash"),
        sql.min(sql.when(is_record, sql.coalesce("pairs", lit(1)))).alias("pairs"),
        sql.max(sql.when(is_record & (col("kind") == UNMATCHED), lit(1)).otherwise(lit(0))).alias("unmatched"),
        sql.count_if(is_record & (col("state") == UNNAMED)).alias("unnamed"),
        sql.max(sql.when(is_record, deed)).alias("deed"),
        sql.min(sql.when(is_record, deed)).alias("least_deed"),
        sql.max(sql.when(is_entry & (col("state") != REOPENED), deed)).alias("registered"),
        sql.max(sql.when(col("role") == RECORD, col("fresh").cast("int"))).alias("fresh"),
        sql.max(sql.when(is_line, col("event_time_ns"))).alias("time_ns"),
    ]
    same, written = lit(False), _with_pairs(col("written"))
    for at, _ in enumerate(question.datacentres, 1):
        here = sql.when(is_line & (number == at), _with_pairs(content))
        columns += [sql.min(here).alias(f"least{at}"), sql.max(here).alias(f"most{at}")]
        same = same | ((col("number") == at) & written.isin(col(f"least{at}"), col(f"most{at}")))
    grouped = rows.where(col("role") != TORN).groupBy("digest").agg(*columns)
    judged = (col("judged_lines") > 0) | ((col("lines") == 0) & (col("judged_others") > 0))
    right = same & _right(question, registry)
    names = sql.get(lit(list(question.datacentres)), col("number").cast("int") - 1)
    return grouped.where(judged).select(
        "digest", "hour", names.alias("datacentre"), "lines", col("verdicts").alias("records"),
        sql.coalesce(right, lit(False)).alias("right"),
    )  # fmt: skip


def _content() -> Column:
    """Hashes a record's contents, without the members that differ between pairs of a set. A matching line gets the
    same hash."""
    kind = sql.when(col("kind") == UNREADABLE, lit(REJECTED)).otherwise(col("kind"))
    text = sql.when((col("role") == LINE) & (col("kind") != "joined"), col("record")).otherwise(col("foreign"))
    alone = col("pairs").isNull()
    text, primary, primary_log, primary_offset = (
        sql.when(alone, each) for each in (text, col("primary"), col("primary_log"), col("primary_offset"))
    )
    return sql.xxhash64(
        kind, *(sql.coalesce(col(name).cast("string"), lit("-")) for name in ("log", "offset", "event_time_ns")),
        sql.coalesce(col("key"), lit(b"\0-")), sql.coalesce(text, lit(0)), sql.coalesce(primary, lit(0)),
        sql.coalesce(primary_log, lit("\0")), sql.coalesce(primary_offset, lit(-1)),
        sql.coalesce(col("reason"), lit(0)), sql.coalesce(col("added"), lit(False)),
    )  # fmt: skip


def _with_pairs(content: Column) -> Column:
    return sql.xxhash64(content, sql.coalesce("pairs_hash", lit(0)))


def _right(question: VerifyQuestion, registry: bool) -> Column:
    """Checks everything except the contents: there is one record, which is the registered one, or all pairs of a set,
    each of which states their number."""
    whole = (col("verdicts") == col("pairs")) & (col("written") == col("least_written")) & (col("unnamed") == 0)
    alone = whole & ((col("unmatched") == 0) | (col("has_primary") == 0))
    registered = (col("entries") == 1) & (col("registered") == col("deed")) & (col("deed") == col("least_deed"))
    known = registered | (col("fresh") == 1)
    if not registry:
        known = lit(True)
    elif question.boundary_ns is not None:
        known = known | ((col("entries") == 0) & (col("time_ns") < question.boundary_ns))
    unreadable = (col("unreadable") == 1) & (col("lines") == 1)
    return alone & (((col("unreadable") == 0) & known) | unreadable)


# -- suspects ----------------------------------------------------------------------------------------------------
def _listed(suspects: DataFrame, run: Any) -> DataFrame:
    """Classifies all rows of an id together. ``suspects``: NARROW with ``lines`` and ``records``."""
    from pyspark.sql import Window

    order = Window.partitionBy("digest", "role").orderBy("datacentre", "log", "offset", "file", "file_offset")
    most = sql.when(col("pairs").isNotNull(), lit(PAIRS_LISTED_MAX)).otherwise(lit(LISTED_MAX))
    few = suspects.withColumn("place", sql.row_number().over(order)).where(col("place") <= most)
    groups = few.groupBy("digest").agg(
        sql.sort_array(sql.collect_list(sql.struct("role", "datacentre", "log", "offset", "file", "file_offset",
                                                   *(n for n in NAMES if n not in _FIRST)))).alias("rows"),
        sql.max("lines").alias("lines"),
        sql.max("records").alias("records"),
    )  # fmt: skip
    return groups.mapInArrow(run, FOUND)


_FIRST = ("role", "datacentre", "log", "offset", "file", "file_offset")
