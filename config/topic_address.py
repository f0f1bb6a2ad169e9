"""Addresses ``kafka://HOST:PORT[,HOST:PORT]/TOPIC``, and the settings of Kafka's clients. Loads no client."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from photon.config.errors import UsageError

SCHEME = "kafka://"
_ADDRESS = re.compile(
    r"kafka://(?P<brokers>[^/,\s]+:\d{1,5}(?:,[^/,\s]+:\d{1,5})*)/(?P<topic>[A-Za-z0-9_-][A-Za-z0-9._-]{0,199})"
)
SETTINGS_MAX = 256
# Settings that exactly-once depends on, or that the address determines.
OURS = ("bootstrap.servers", "transactional.id", "isolation.level", "group.id", "enable.auto.commit")


@dataclass(frozen=True, slots=True)
class TopicAddress:
    brokers: str  # some brokers of the cluster, HOST:PORT separated by commas
    topic: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.brokers}/{self.topic}"


def is_topic(address: str) -> bool:
    return address.startswith(SCHEME)


def topic_in(path: Path) -> str | None:
    """Restores a topic's address that was parsed as a path, and so lost a slash; ``None`` for any other path."""
    head, _, rest = str(path).partition("kafka:/")
    return None if head or not rest else f"{SCHEME}{rest.lstrip('/')}"


def topic_address(text: str, what: str) -> TopicAddress:
    """Parses an address; ``what`` names it in the error. Raises UsageError, also for a topic with a leading dot."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise UsageError(f"{what} = {text!r}: must be kafka://HOST:PORT/TOPIC; separate several brokers by commas")
    return TopicAddress(found["brokers"], found["topic"])


def client_settings(file: Path | None) -> dict[str, str]:
    """Reads a properties file (lines such as ``security.protocol=SSL``, in librdkafka's names). Raises UsageError."""
    if file is None:
        return {}
    found: dict[str, str] = {}
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: settings of Kafka's clients cannot be read ({error})") from None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not name:
            raise UsageError(f"{file}:{number}: must be NAME=VALUE, for instance security.protocol=SSL")
        if name in OURS:
            raise UsageError(f"{file}:{number}: Photon sets {name} itself; leave it out")
        found[name] = value
    if len(found) > SETTINGS_MAX:
        raise UsageError(f"{file}: has {len(found)} settings; at most {SETTINGS_MAX} are allowed")
    return found
