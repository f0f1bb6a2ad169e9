"""HBase's Java classes, parsed and checked once and kept next to its jars: each of the Java processes that the tests
start takes two thirds of the processor time then. A Java of another build makes its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from deploy.hbase.standalone import Ports, Standalone
from photon.supervision.ports import free_ports

JAVA_OPTIONS = "JDK_JAVA_OPTIONS"


def shared(jars: Path, directory: Path, start_seconds_max: float) -> str:
    """Options of Java that use them; they are made in ``directory`` where they are not there yet, by an HBase that
    starts and stops."""
    java = Path(shutil.which("java") or "java").resolve()
    archive = jars.with_name(f"{jars.name}-{int(java.stat().st_mtime)}.jsa")
    if not archive.exists():
        made, names = directory / "classes.jsa", _loaded(jars, directory, start_seconds_max)
        command = [
            java, "-Xshare:dump", "-XX:+UseSerialGC", f"-XX:SharedClassListFile={names}",
            f"-XX:SharedArchiveFile={made}", "-Xlog:disable", "-cp", f"{jars}/*",
        ]  # fmt: skip
        subprocess.run(command, capture_output=True, check=True)
        part = shutil.move(made, archive.with_name(f"{archive.name}.{os.getpid()}.part"))
        part.rename(archive)
    return f"-XX:SharedArchiveFile={archive} -Xlog:disable"


def _loaded(jars: Path, directory: Path, start_seconds_max: float) -> Path:
    """The names of the classes that it loads."""
    server = Standalone(directory, jars, Ports(*free_ports(5)), start_seconds_max)
    server.configure()
    os.environ[JAVA_OPTIONS] = f"-XX:DumpLoadedClassList={directory}/%p.classes"
    try:
        server.start()
        server.stop(signal.SIGTERM)  # it writes them to the end
    finally:
        server.stop(signal.SIGKILL)
        del os.environ[JAVA_OPTIONS]
    names = directory / "classes"
    names.write_text("".join(each.read_text() for each in sorted(directory.glob("*.classes"))))
    return names
