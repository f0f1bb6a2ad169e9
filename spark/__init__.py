"""Verification, recovery and backfill on Spark. Filled by a later release."""
