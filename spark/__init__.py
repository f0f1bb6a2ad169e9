"""Runs the join, verification, recovery and backfill on Spark, and offers Photon's output as a Spark data source."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from photon.spark.pipeline.query import JoinQuery

__all__ = ["join", "register"]


def register(spark: SparkSession) -> None:
    """Registers ``spark.read.format("photon")`` and ``spark.readStream.format("photon")`` in a session, and sends
    Photon's code to its executors. Raises WorkerPythonWrong, with the setting to change, if their Python cannot run
    it."""
    from photon.spark.data_source import PhotonSource

    _send(spark)
    spark.dataSource.register(PhotonSource)


def join(
    spark: SparkSession, config: str | Path, datacentre: str | None = None, *, once: bool = False, trigger: str = "1s"
) -> JoinQuery:
    """Starts a datacentre's join in a separate thread, like ``photon spark join``::

        query = photon.spark.join(spark, "photon.toml", "east")
        query.awaitTermination()

    ``spark``: the session that runs large batches; the join does not stop it. ``config``: the deployment file;
    ``datacentre``: ``None`` if the file has only one. ``once``: joins the existing logs and ends; otherwise follows
    them until ``stop``. ``trigger``: the minimum interval between two scans of the logs.

    Raises WorkerPythonWrong, UsageError (also ConfigError); later errors are in the query's ``exception``.
    """
    from importlib import import_module
    from pathlib import Path

    _send(spark)
    # Imported by name: this room is below the one that reads a deployment file.
    operations = import_module("photon.operations.spark_join")
    query: JoinQuery = operations.in_session(spark, Path(config), datacentre, once=once, trigger=trigger)
    return query


def _send(spark: SparkSession) -> None:
    from photon.spark.shipping import ship
    from photon.spark.worker_python import check

    ship(spark, everywhere=not check(spark))
