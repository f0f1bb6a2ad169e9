"""The options of one run of ``photon join``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from photon.adapters.contract import Adapter
from photon.config.errors import PhotonError
from photon.local_join.given import Given
from photon.local_join.words import NOTHING_SAID, Words


class JoinFailed(PhotonError):
    """A part of the pipeline failed; earlier results are durable."""


@dataclass(frozen=True, slots=True)
class JoinOptions:
    primary: Path  # a directory, file, glob or topic, or ``-`` for standard input; so is ``foreign``
    foreign: Path
    output: Path
    config: Path | None = None  # `None`: infer it from the logs and ``words``
    words: Words = NOTHING_SAID
    overrides: tuple[str, ...] = ()
    join: str | None = None
    once: bool = False
    keep_pending: bool = False
    kafka_client: Path | None = None  # file of Kafka client properties, for a side kafka://HOST:PORT/TOPIC
    accept_lost_offsets: bool = False  # continue although a topic's messages are gone
    stages: Path | None = None  # profile; the event store's process writes its own next to it

    def sides(self) -> dict[str, Path]:
        """Returns the path given for each side."""
        return {"primary": self.primary, "foreign": self.foreign}

    def at(self, join: str, sides: Mapping[str, Given], adapter: Adapter) -> JoinOptions:
        """Returns these options with the sides' directories, and settings that select the files in them. The user's
        settings take precedence."""
        allowed = {"primary": adapter.primary_links, "foreign": adapter.foreign_links}
        files = [
            f"join.{join}.{side}_files={orjson.dumps(logs.patterns).decode()}"
            for side, logs in sides.items()
            if logs.patterns is not None
        ]
        links = [
            f"join.{join}.{side}.follow_links={orjson.dumps([*allowed[side], *logs.links]).decode()}"
            for side, logs in sides.items()
            if logs.links
        ]
        primary, foreign = sides["primary"].directory, sides["foreign"].directory
        return replace(self, primary=primary, foreign=foreign, overrides=(*files, *self.overrides, *links))
