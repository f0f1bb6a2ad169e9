"""A report is valid for the deployment it was made from, however its processes change."""

from __future__ import annotations

from msgspec import structs

from photon.config.settings import Duration, Join, Pipeline, Settings
from photon.spark.verify.verdict import fingerprint

KEY = b"k" * 32


def settings(**changes: str) -> Settings:
    pipeline = Pipeline(
        join="clicks", primary="q", foreign="c", output="o", state="s", address="x:1",
    )  # fmt: skip
    joins = {"clicks": Join(unmatched_after=Duration(3600.0))}
    return Settings(join=joins, datacentre={"east": structs.replace(pipeline, **changes)})


def test_it_changes_with_what_findings_depend_on() -> None:
    one = fingerprint(settings(), KEY)
    assert len(one) == 32
    assert one == fingerprint(settings(), KEY)
    assert one != fingerprint(settings(), b"j" * 32)
    assert one != fingerprint(settings(foreign="d"), KEY)
    other = structs.replace(settings(), join={"clicks": Join()})
    assert one != fingerprint(other, KEY)


def test_processes_may_come_and_go() -> None:
    own = settings().datacentre["east"]
    more = structs.replace(own, joiners=2, apart={"dispatcher": "x:4"})
    changed = structs.replace(settings(), datacentre={"east": more})
    assert fingerprint(changed, KEY) == fingerprint(settings(), KEY)
