"""Verification, recovery and backfill on Spark, and Photon's output as a data source of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Makes ``spark.read.format("photon")`` and ``spark.readStream.format("photon")`` known to a session, and sends
    Photon's code to its executors."""
    from photon.spark.data_source import PhotonSource
    from photon.spark.shipping import ship

    ship(spark)
    spark.dataSource.register(PhotonSource)
