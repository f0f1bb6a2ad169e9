"""Periods and time-outs of the simulated deployment: real ones, but coarser, so that a seed is quick."""

from __future__ import annotations

from dataclasses import replace

from photon.config.back_off import BackOff
from photon.config.clock import NS_PER_S
from photon.dispatcher.retry import NOT_YET_BACKOFF, Patience
from photon.eventstore.api import Progress
from photon.eventstore.tiered import NOTHING_READ_NS
from photon.verifier.recovery import RecoveryLimits

UNCERTAINTY_S = 5.0  # S: no two clocks differ by more
UNCERTAINTY_NS = int(UNCERTAINTY_S * NS_PER_S)
PATIENCE_S = 8.0
MAX_DELAY_S = 2.0  # a line is in its log's copy within this time after it was written (``primary.max_delay``)
PATIENCE = Patience(
    unmatched_after_ns=int(PATIENCE_S * NS_PER_S), slack_ns=UNCERTAINTY_NS + int(MAX_DELAY_S * NS_PER_S)
)
SETS = replace(PATIENCE, whole_sets=True)
# Primary events that come within this time after the foreign event are waited for.
WAITED_S = PATIENCE_S + UNCERTAINTY_S + MAX_DELAY_S

STORE_TIMEOUT_S = 3.0
JOIN_TIMEOUT_S = 5.0
INSERT_TIMEOUT_S = 2.5
VERIFIER_PERIOD_S = 1.5
RECOVERY_LOOK_S = 2.0
RECOVERY = RecoveryLimits(retry_s=2.0, ask_s=2.0, again=BackOff(first=10.0, most=40.0))
REOPENED_S = 1.0  # interval at which dispatchers read the list of reopened ids
NO_PROGRESS = Progress(read_past_ns=NOTHING_READ_NS)

GROWTH_S = 25.0  # time for which the logs grow
FAULTS_S = 35.0  # time until which faults happen
LEAPS_S = (3 * 3600, 26 * 3600, 90 * 3600)  # errors of whole datacentres' clocks, where they are a day apart
# Time for which the registry remembers ids there: more than the age of the oldest stamp of any copy.
RETENTION_S = 96 * 3600
REST_S = 120.0  # time after the last fault within which every event has its verdict and every token is cleared
# The same where clocks were also wrong by hours. A set read by such a clock is tried once when the clock goes back,
# before the store's clock is heard, and then by back-off: only that try finds that it was not read in the future.
REST_OF_SETS_APART_S = REST_S + NOT_YET_BACKOFF.most
