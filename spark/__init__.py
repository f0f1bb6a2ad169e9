"""Verification, recovery and backfill on Spark, and Photon's output as a data source of Spark."""
