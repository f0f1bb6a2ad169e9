"""Each night, once yesterday is complete, verifies all days that no night has closed. photon_recover, which a person
triggers, repairs the problems in a report."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, CronDataIntervalTimetable
from photon_airflow import VerifyOperator, WatermarkSensor

CONFIG = os.environ.get("PHOTON_CONFIG", "/etc/photon/photon.toml")
REPORTS = os.environ.get("PHOTON_REPORTS", "/mnt/shared/photon/reports")
OPTIONS = json.loads(os.environ.get("PHOTON_VERIFY_OPTIONS", '["--master", "spark://host:7077"]'))
SINCE, UNTIL = "{{ data_interval_start | ds }}", "{{ data_interval_end | ds }}"

with DAG(
    "photon_nightly",
    schedule=CronDataIntervalTimetable("30 4 * * *", timezone="UTC"),
    start_date=datetime(2025, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 1, "retry_delay": timedelta(minutes=15), "execution_timeout": timedelta(hours=4)},
):
    complete = WatermarkSensor(
        task_id="complete", until=UNTIL, config=CONFIG, mode="reschedule", poke_interval=60, timeout=4 * 3600
    )
    report = f"{REPORTS}/{SINCE}"
    verify = VerifyOperator(task_id="verify", config=CONFIG, report=report, options=OPTIONS)
    repair = BashOperator(
        task_id="what_a_repair_would_do",
        bash_command=f"photon spark recover --report {report} --config {CONFIG} --dry-run",
        trigger_rule="all_failed",
    )
    right = EmptyOperator(task_id="right")  # Airflow judges a run only by its last tasks, and the repair's succeeds
    complete >> verify >> [right, repair]

with DAG("photon_recover", schedule=None, start_date=datetime(2025, 1, 1), params={"day": "2026-11-20"}):
    BashOperator(
        task_id="recover",
        bash_command=f"photon spark recover --report {REPORTS}/{{{{ params.day }}}} --config {CONFIG} --yes",
    )
