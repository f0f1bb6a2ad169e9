"""Verification, recovery and backfill on Spark, and Photon's output as a data source of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Makes ``spark.read.format("photon")`` and ``spark.readStream.format("photon")`` known to a session, and sends
    Photon's code to its executors. Raises WorkerPythonWrong where their Python cannot run it: what to set."""
    from photon.spark.data_source import PhotonSource
    from photon.spark.shipping import ship
    from photon.spark.worker_python import check

    ship(spark, everywhere=not check(spark))
    spark.dataSource.register(PhotonSource)
