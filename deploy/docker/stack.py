"""Starts, judges and ends the deployment of docker-compose.yml: what `make up`, `make smoke` and the tests run.

    python deploy/docker/stack.py up      build, start, wait until all are healthy and joins flow in both datacentres
    python deploy/docker/stack.py reload  bring the changed deployment file to all processes, one after the other
                                          (--dry-run: only say which)
    python deploy/docker/stack.py restart  all processes, one by one: for another image, or renewed certificates
    python deploy/docker/stack.py down    end it; its volumes go as well (--keep keeps them)
    python deploy/docker/stack.py smoke   up, traffic, a verdict on every event, down

Standard library only. Works with Compose v2 and with docker-compose 1.29, whichever is there. Where python:3.11
cannot be pulled, set BASE_IMAGE (deploy/docker/base_image.sh makes one).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Next to the deployment file: a copy of the settings that the running processes were started with by this script.
APPLIED = ".photon-applied.toml"
CONFIG = ("--config", "/etc/photon/photon.toml")
RESTART_SECONDS = 12.0  # usual time of one restart: the container's end and start, and its first answer
ORDER = ("registry", "datacentre", "joiner", "spark", "wan")  # order in which kinds of processes are restarted
NO_IMAGE = (
    "pull access denied",
    "failed to resolve",
    "error pulling image",
    "registry-1.docker.io",
    "manifest unknown",
)
DATACENTRES = {"east": 8081, "west": 8082}  # datacentres, and the ports of their status pages
HEALTHY_SECONDS_MAX = 600.0  # time from the start of the first container; 60 s is usual on two idle cores
FLOW_SECONDS_MAX = 180.0
LEAVE_SECONDS_MAX = 30.0
SETTLE = "180s"
POLL_SECONDS = 2.0


class Failed(Exception):
    """A step failed; the message is one line."""


def compose() -> list[str]:
    """The Compose command. Raises Failed."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]):
            said = subprocess.run([*command, "version"], capture_output=True, check=False)
            if said.returncode == 0:
                return command
    raise Failed("neither `docker compose` nor `docker-compose` was found: install Docker with Compose")


class Stack:
    """One deployment under a project name."""

    def __init__(
        self, say: Callable[[str], None], *, insecure: bool = False, hbase: bool = False, command: Sequence[str] = ()
    ) -> None:
        """``command``: the Compose command; found if not given."""
        self.settings = Path(os.environ.get("PHOTON_SETTINGS") or ROOT / "deploy" / "compose") / "photon.toml"
        # Paths in it are below ROOT, wherever the file is.
        self.file = Path(os.environ.get("PHOTON_COMPOSE") or ROOT / "docker-compose.yml")
        self._applied = self.settings.with_name(APPLIED)
        self._base = [*(command or compose()), "--project-directory", str(ROOT), "-f", str(self.file)]
        self._say = say
        self.project = os.environ.get("COMPOSE_PROJECT_NAME", "photon")
        patience = {"COMPOSE_HTTP_TIMEOUT": "300"}  # docker-compose 1.29 waits this long for a busy Docker
        self._environment = {**patience, **os.environ, "COMPOSE_PROJECT_NAME": self.project}
        if insecure:
            self._environment["PHOTON_TLS"] = ""
        if hbase:
            extras = f"{self._environment.get('PHOTON_EXTRAS', '')} hbase".strip()
            self._environment |= {"PHOTON_HBASE": "hbase:9090", "PHOTON_EXTRAS": extras, "COMPOSE_PROFILES": "hbase"}

    def run(self, *arguments: str, timeout: float = 1200.0) -> str:
        """Runs Compose; returns its standard output. Raises Failed."""
        done = subprocess.run(
            [*self._base, *arguments], cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        if done.returncode:
            whole = done.stderr + done.stdout
            if any(words in whole for words in NO_IMAGE) and "BASE_IMAGE" not in self._environment:
                raise Failed(
                    "the base image cannot be pulled: make one of Debian's packages by sudo "
                    "deploy/docker/base_image.sh, and set BASE_IMAGE=local/python:3.11"
                )
            said = whole.strip().splitlines()[-8:]
            raise Failed(f"compose {' '.join(arguments)}: exit {done.returncode}: {' / '.join(said)}")
        return done.stdout

    def build(self) -> None:
        """Builds the images, from the cache where nothing has changed."""
        began = time.monotonic()
        self.run("build")
        self._say(f"images were built after {time.monotonic() - began:.0f} s")

    def up(self) -> None:
        """Starts all services and waits until all are healthy."""
        began = time.monotonic()
        self.run("up", "-d", "--remove-orphans")
        self._applied.write_bytes(self.settings.read_bytes())
        self.wait("all healthy", self.unhealthy, HEALTHY_SECONDS_MAX, began)

    def reload(self, *, dry_run: bool = False) -> None:
        """Applies the changed deployment file to every process that reads a change: starts new ones, ends removed
        ones, and restarts the others one after the other. Says first which. Raises Failed; a bad file changes
        nothing."""
        self.operator(next(iter(DATACENTRES)), "photon", "doctor", "config", *CONFIG)
        before = _flat(tomllib.loads(self._applied.read_text())) if self._applied.exists() else {}
        now = _flat(tomllib.loads(self.settings.read_text()))
        changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
        for key in changed:
            self._say(f"{key}: {before.get(key, 'not set')} -> {now.get(key, 'not set')}")
        if not dry_run:
            self.build()
        old = in_turn(self.containers())
        told = self._definitions()
        some = [each for each in old if _reads(_service(each), changed) or self._is_other(each, told)]
        names = ", ".join(map(_service, some)) or "none"
        self._say(f"restarts {len(some)} processes in turn, in about {len(some) * RESTART_SECONDS:.0f} s: {names}")
        if dry_run:
            self._say("nothing was changed")
            return
        # New processes are called through the gateway, so it is made again first; up alone would make all at once.
        gateway = [each for each in some if _kind(each) == "wan" and self._is_other(each, told)]
        self.restart_each(gateway)
        self.run("up", "-d", "--no-recreate", "--remove-orphans")
        self.wait("new processes healthy", self.unhealthy, HEALTHY_SECONDS_MAX)
        self.restart_each([each for each in some if each not in gateway])
        self._applied.write_bytes(self.settings.read_bytes())
        self._say(f"{len(changed)} keys changed, {len(some)} processes restarted")

    def restart_each(self, some: Sequence[dict[str, Any]] | None = None) -> None:
        """Restarts processes of Photon one after the other, each with the current image. `None` means all."""
        told = self._definitions()
        for each in in_turn(self.containers() if some is None else some):
            alike = [other["Id"] for other in self.containers() if _service(other) == _service(each)]
            if each["Id"] in alike:  # else it was made again with another one of its service, or is gone
                self.restart(each, again=len(alike) if self._is_other(each, told) else 0)

    def _definitions(self) -> dict[str, str]:
        """Returns the hash of each service's definition."""
        return dict(line.split() for line in self.run("config", "--hash", "*").splitlines())

    def _is_other(self, container: dict[str, Any], told: Mapping[str, str]) -> bool:
        """True if the container's definition or image has changed."""
        name = _service(container)
        other = name in told and container["Config"]["Labels"].get("com.docker.compose.config-hash") != told[name]
        return other or self._image(container) != container["Image"]

    def _image(self, container: dict[str, Any]) -> str:
        """Returns the id of the image that the container's image name refers to now."""
        return self.docker("image", "inspect", "-f", "{{.Id}}", container["Config"]["Image"]).strip()

    def restart(self, container: dict[str, Any], *, again: int = 0) -> None:
        """Restarts one process; a replica first hands over what it leads, a datacentre's waits for the other one.
        ``again``: makes this many containers of its service again instead. Raises Failed."""
        kind, _, name = _service(container).partition("-")
        if name in DATACENTRES:
            self._wait_for_others(_service(container), name)
        began = time.monotonic()
        if kind == "registry":
            self.operator(next(iter(DATACENTRES)), "photon", "registry", "transfer-leader", *CONFIG, "--from", name)
        if again:
            service = _service(container)
            self.run("up", "-d", "--no-deps", "--scale", f"{service}={again}", service)
        else:
            self.docker("restart", "--time", "30", container["Id"])
        self.wait(
            f"{_service(container)} restarted",
            lambda: self.unhealthy(_service(container)),
            HEALTHY_SECONDS_MAX,
            began,
        )
        if kind == "registry":
            self.operator(next(iter(DATACENTRES)), "photon", "status", "registry", *CONFIG, "--wait")

    def _wait_for_others(self, service: str, datacentre: str) -> None:
        """Waits until another datacentre can join while this one's service is away. Raises Failed."""
        began = time.monotonic()
        while why := self._away(datacentre):
            if time.monotonic() - began > FLOW_SECONDS_MAX:
                raise Failed(
                    f"{service} was not restarted, because nothing would join meanwhile: {why}; fix that, or "
                    f"restart it anyway: docker-compose restart {service}"
                )
            time.sleep(POLL_SECONDS)

    def _away(self, without: str) -> str:
        """Returns the services of the other datacentres without a healthy container; empty if there are none."""
        found: dict[str, list[str]] = {}
        for each in self.containers():
            kind, _, name = _service(each).partition("-")
            if kind in ORDER and name in DATACENTRES and name != without:
                status = each["State"]["Status"]
                found.setdefault(_service(each), []).append(self.ill(each) if status == "running" else status)
        return ", ".join(f"{service} {said[0]}" for service, said in found.items() if all(said))

    def wait(self, what: str, problem: Callable[[], str], seconds_max: float, began: float | None = None) -> None:
        """Waits until ``problem()`` is empty. Raises Failed."""
        began = time.monotonic() if began is None else began
        while said := problem():
            if time.monotonic() - began > seconds_max:
                raise Failed(f"not {what} within {seconds_max:.0f} s: {said}")
            time.sleep(POLL_SECONDS)
        self._say(f"{what} after {time.monotonic() - began:.0f} s")

    def containers(self) -> list[dict[str, Any]]:
        """Containers as ``docker inspect`` describes them, including ended ones."""
        ids = self.docker("ps", "-aq", "--filter", f"label=com.docker.compose.project={self.project}").split()
        found: list[dict[str, Any]] = json.loads(self.docker("inspect", *ids)) if ids else []
        return found

    def docker(self, *arguments: str) -> str:
        """Runs docker; returns its standard output. Raises Failed."""
        done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"docker {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def unhealthy(self, *services: str) -> str:
        """Returns the unhealthy services among those named, or among all; empty if all are healthy."""
        found = []
        for each in self.containers():
            if services and _service(each) not in services:
                continue
            trouble = _trouble(each["State"]) or self.ill(each)
            if trouble:
                found.append(f"{_service(each)} {trouble}")
        return ", ".join(found)

    def ill(self, container: dict[str, Any]) -> str:
        """The result of its own health check, which Docker itself runs rarely; empty if it is healthy, or has no
        check."""
        test = (container["Config"].get("Healthcheck") or {}).get("Test", [])[1:]
        if not test or container["State"]["Status"] == "exited":
            return ""
        done = subprocess.run(["docker", "exec", container["Id"], *test], capture_output=True, text=True, check=False)
        return (done.stderr.strip() or "does not serve") if done.returncode else ""

    def status(self, datacentre: str) -> dict[str, Any]:
        """Returns the contents of a datacentre's status page; empty if it does not answer."""
        port = int(os.environ.get(f"PHOTON_STATUS_{datacentre.upper()}", DATACENTRES[datacentre]))
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/status.json", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, ValueError):
            return {}

    def joined(self, datacentre: str) -> int:
        """Returns the number of joined events in a datacentre's ledger."""
        ledger = self.status(datacentre).get("ledger", {}).get("total") or {}
        return int(ledger.get("joined") or 0)

    def joined_by_slot(self, datacentre: str) -> dict[str, int]:
        """Returns the number of events that each live slot has joined, from the status page."""
        slots = self.status(datacentre).get("slots", [])
        return {each["slot"]: int(each["joined"] or 0) for each in slots if each["state"] == "live"}

    def operator(self, datacentre: str, *command: str) -> str:
        """Runs a command in a datacentre's operator container; returns its output. Raises Failed."""
        return self.run("run", "--rm", "--no-deps", "-T", f"operator-{datacentre}", *command)

    def wait_for_joins(self, *datacentres: str) -> None:
        """Waits until these datacentres, or both, have joined more events than at the call."""
        names = datacentres or tuple(DATACENTRES)
        first: dict[str, int] = {}

        def still() -> str:
            waiting = []
            for name in names:
                joined = self.joined(name)
                if joined:  # else its status page may be away
                    first.setdefault(name, joined)
                if joined <= first.get(name, joined):
                    waiting.append(name)
            return ", ".join(waiting)

        self.wait(f"joins in {' and '.join(names)}", still, FLOW_SECONDS_MAX)

    def verdict(self) -> dict[str, Any]:
        """Stops the generator and compares all output with the truth of what it wrote. Raises Failed."""
        self.run("stop", "generator")
        command = ("photon", "feed", "check", "--of", "/logs", "--output", "/output", "--output", "/elsewhere/output")
        said = self.operator("east", *command, "--wait", SETTLE, "-o", "json")
        found: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
        return found

    def down(self, *, keep: bool = False) -> None:
        """Ends all containers. Raises Failed."""

        def still() -> str:
            try:
                self.run("down", "--remove-orphans", *([] if keep else ["-v"]))
            except Failed as failed:
                # A container is gone shortly before it leaves its networks, which cannot be removed until then.
                if "active endpoints" not in str(failed):
                    raise
                return str(failed)
            return ""

        self.wait("down", still, LEAVE_SECONDS_MAX)


def in_turn(containers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of Photon in the order of their restarts: replicas, one datacentre after the other, what belongs to
    none. While one datacentre's processes are away, the other one joins."""

    def turn(container: dict[str, Any]) -> tuple[bool, str, int, str]:
        kind, _, where = _service(container).partition("-")
        after = where if where in DATACENTRES else "~"
        return kind != "registry", "" if kind == "registry" else after, ORDER.index(kind), container["Name"]

    return sorted((each for each in containers if _kind(each) in ORDER), key=turn)


def _service(container: dict[str, Any]) -> str:
    return str(container["Config"]["Labels"]["com.docker.compose.service"])


def _kind(container: dict[str, Any]) -> str:
    return _service(container).partition("-")[0]


def _trouble(state: dict[str, Any]) -> str:
    """Returns a container's problem; empty if it runs, or ended as it should."""
    if state["Status"] == "exited" and state["ExitCode"] == 0:
        return ""
    return "" if state["Status"] == "running" else str(state["Status"])


def _flat(table: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Flattens nested tables: ``a.b.c`` -> value."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= _flat(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value}
    return found


def _reads(service: str, changed: Sequence[str]) -> bool:
    """True if a service reads one of these keys at its start. A table [datacentre.NAME] is read by that datacentre's
    services and all with a status page; [wan] by the gateway; any other by every process of Photon."""
    kind, _, where = service.partition("-")
    for key in changed:
        table, _, rest = key.partition(".")
        if table == "datacentre":
            if where == rest.partition(".")[0] or kind == "datacentre":
                return True
        elif table != "wan" or kind == "wan":
            return True
    return False


def smoke(stack: Stack, say: Callable[[str], None], seconds: float = 20.0) -> None:
    """Starts the deployment, lets traffic flow, and checks every event. Raises Failed."""
    try:
        stack.build()
        stack.up()
        stack.wait_for_joins()
        time.sleep(seconds)  # traffic
        found = stack.verdict()
        say(
            f"each of {found['clicks']} clicks exactly once: {found['joined']} joined, {found['unmatched']} unmatched"
        )
    finally:
        stack.down()


def main() -> int:
    """Returns the exit code: 0 if it succeeded, 1 if it failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=["up", "reload", "restart", "down", "smoke"])
    parser.add_argument("--insecure", action="store_true", help="without TLS")
    parser.add_argument("--hbase", action="store_true", help="the file map in an HBase of each datacentre")
    parser.add_argument("--dry-run", action="store_true", help="reload: only show what would be restarted")
    parser.add_argument("--keep", action="store_true", help="down: keep the volumes")
    given = parser.parse_args()

    def say(line: str) -> None:
        print(line, flush=True)

    try:
        stack = Stack(say, insecure=given.insecure, hbase=given.hbase)
        if given.command == "down":
            stack.down(keep=given.keep)
        elif given.command == "reload":
            stack.reload(dry_run=given.dry_run)
        elif given.command == "restart":
            stack.restart_each()
        elif given.command == "smoke":
            smoke(stack, say)
        else:
            stack.build()
            stack.up()
            stack.wait_for_joins()
            for name, port in DATACENTRES.items():
                say(f"{name}: http://127.0.0.1:{os.environ.get(f'PHOTON_STATUS_{name.upper()}', port)}/")
    except Failed as error:
        print(f"stack: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
