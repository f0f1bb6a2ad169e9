"""The story of an event in an output of ``photon join``: from its files alone, whether it runs or not.

Its registry is a part of its process, and its dispatcher answers nobody; so what stands in outputs and retry store is
all there is.
"""

from __future__ import annotations

from photon.config.disk import RealDisk
from photon.dispatcher.database import STATE_NAME
from photon.embedded.explaining.budget import Budget
from photon.embedded.explaining.dispatchers import in_retry_store
from photon.embedded.explaining.evidence import Evidence
from photon.embedded.explaining.outputs import search_place
from photon.embedded.explaining.question import Question
from photon.embedded.explaining.redo import search_redo_logs
from photon.outputs import OutputPlace


def look(place: OutputPlace, question: Question, budget: Budget) -> Evidence:
    """What the files of one pipeline have."""
    time_ns = question.time_ns
    evidence = in_retry_store(place.state / STATE_NAME, question, budget)
    evidence.add(search_place(RealDisk(), place, question, budget, time_ns=time_ns))
    evidence.add(search_redo_logs(RealDisk(), place, question, budget))
    return evidence
