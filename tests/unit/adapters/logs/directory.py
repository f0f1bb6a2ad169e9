"""A directory of logs and its follower, told as stories.

Files: ``write FILE LINES`` (``~`` behind a line: without its end), ``append``, ``pack`` (lines as one more member of
a gzip file), ``cp``, ``mv``, ``rm``, ``gzip FROM TO``, ``truncate FILE BYTES``, ``written_at FILE SECOND``, ``ln``,
``link FILE TO``, ``fifo``. ``_`` is a blank, ``''`` an empty line, ``x*9`` nine of them; ``/`` is above the logs.

Readers: ``follow`` begins without positions, ``restart`` at those so far. ``read`` answers new lines and problems,
``final`` those at the end of everything. ``scan`` and ``poll`` are its halves. ``found`` answers what a scan sees.

``follow rest=60`` lets a last line count once its file is at rest by a clock that only ``after SECONDS`` moves.
``follow watch=yes`` is notified of changes; ``whole`` answers how many scans of the whole directory it has needed.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
from base64 import b64decode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from photon.adapters.contract import Framing
from photon.adapters.formats.text_lines import TextLines
from photon.adapters.logs import tail as watching
from photon.adapters.logs.api import Block, LogPosition
from photon.adapters.logs.discovery import compile_patterns, discover
from photon.adapters.logs.inotify import InotifyWatcher
from photon.adapters.logs.log_finder import find_logs
from photon.adapters.logs.problems import Problem, ProblemReporter
from photon.adapters.logs.slices import Reading, standing_logs
from photon.adapters.logs.unended_lines import RestRule
from photon.config.clock import NS_PER_S
from tests.unit.adapters.logs.tails import Tail
from tests.unit.adapters.messages import delimited


def _short(text: str) -> str:
    return re.sub(r"(\w)\1{49,}", lambda part: f"{part[1]}*{len(part[0])}", text)


class Directory:
    def __init__(self, base: Path) -> None:
        self.base, self.logs = base, base / "logs"
        self.logs.mkdir()
        self.tail: Tail | None = None
        self.watcher: watching.Tail | None = None
        self.failures: list[str] = []
        self.now_s, self.whole_scans = 1_760_000_000.0, 0
        self._told = 0
        self.options: dict[str, Any] = {}
        self.varint = self.watch = False

    def _at(self, name: str) -> Path:
        path = self.base / name[1:] if name.startswith("/") else self.logs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    # -- files ------------------------------------------------------------------------------------------------------
    def write(self, name: str, *lines: str) -> None:
        self._at(name).write_bytes(self._bytes(lines))

    def append(self, name: str, *lines: str) -> None:
        with self._at(name).open("ab") as file:
            file.write(self._bytes(lines))
        if "rest" in self.options:
            self.written_at(name, str(int(self.now_s)))

    def pack(self, name: str, *lines: str, cut: str = "0") -> None:
        packed = gzip.compress(self._bytes(lines), mtime=0)
        with self._at(name).open("ab") as file:
            file.write(packed[: len(packed) - int(cut)])

    def gzip(self, source: str, to: str, cut: str = "0") -> None:
        packed = gzip.compress(self._at(source).read_bytes(), mtime=0)
        self._at(to).write_bytes(packed[: len(packed) - int(cut)])

    def cp(self, source: str, to: str) -> None:
        shutil.copy(self._at(source), self._at(to))

    def mv(self, source: str, to: str) -> None:
        os.rename(self._at(source), self._at(to))

    def rm(self, *names: str) -> None:
        for name in names:
            self._at(name).unlink()

    def truncate(self, name: str, to: str) -> None:
        os.truncate(self._at(name), int(to))

    def written_at(self, name: str, second: str) -> None:
        os.utime(self._at(name), (int(second), int(second)))

    def link(self, name: str, to: str) -> None:
        self._at(name).symlink_to(self.base / to[1:] if to.startswith("/") else to)

    def fifo(self, name: str) -> None:
        os.mkfifo(self._at(name))

    def ln(self, source: str, to: str) -> None:
        os.link(self._at(source), self._at(to))

    def _bytes(self, lines: Sequence[str]) -> bytes:
        plain = [re.sub(r"^(.)\*(\d+)", lambda part: part[1] * int(part[2]), line) for line in lines]
        plain = ["" if line == "''" else line.replace("_", " ") for line in plain]
        texts = [line.encode("latin-1").decode("unicode_escape").encode("latin-1") for line in plain]
        if self.varint:
            torn = bool(texts) and texts[-1][-1:] == b"~"
            data = delimited([text.removesuffix(b"~") for text in texts])
            return data[:-3] if torn else data
        return b"".join(text[:-1] if text[-1:] == b"~" else text + b"\n" for text in texts)

    # -- readers ----------------------------------------------------------------------------------------------------
    def follow(
        self,
        framing: str = "",
        header: str = "",
        match: str = "**/*",
        first_line: str = "",
        links: str = "",
        begins: str = "",
        rest: str = "",
        watch: str = "",
        **more: str,
    ) -> None:
        self.options = {"has_header": bool(header), "patterns": tuple(match.split(",")), "links": self._links(links)}
        self.options |= {name: int(value) for name, value in more.items()}
        if rest:
            self.options["rest"] = RestRule(float(rest), lambda: int(self.now_s * NS_PER_S))
        if begins:
            self.options["framing"] = TextLines(begins=begins.encode())
        elif framing or first_line:
            self.options["framing"] = Framing(framing or "lines", first_line=bool(first_line))
        self.varint, self.watch = framing == "varint", bool(watch)
        self._begin(())

    def _begin(self, positions: Sequence[LogPosition]) -> None:
        self._told = self.whole_scans = 0
        if not self.watch:
            self.tail = Tail(self.logs, positions, **self.options)
            return
        watcher = InotifyWatcher(self.logs)
        self.tail = Tail(self.logs, positions, enter=watcher.enter, **self.options)
        self.tail.follower.scan = self._counted(self.tail.follower.scan)  # type: ignore[method-assign]
        self.watcher = watching.Tail(self.tail.follower, watcher, lambda: self.now_s, report=self.failures.append)

    def _counted(self, scan: Callable[..., bool]) -> Callable[..., bool]:
        def counted(*changes: set[str]) -> bool:
            whole = scan(*changes)
            self.whole_scans += whole
            return whole

        return counted

    def restart(self) -> None:
        at = self._follower.positions()
        self.close()
        self._begin(at)

    def _links(self, names: str) -> list[str]:
        return [str(self._at(name)) for name in names.split(",") if name]

    def found(self, links: str = "", match: str = "**/*") -> list[str]:
        problems: list[Problem] = []
        patterns = compile_patterns([match])
        logs = discover(self.logs, patterns, ProblemReporter(problems.append), links=self._links(links))
        return [*(each.path for each in logs), *self._shown(problems)] or ["nothing"]

    def _shown(self, problems: Sequence[Problem]) -> list[str]:
        return [str(each).replace(str(self.base), "") for each in problems]

    def read(self, times: str = "1") -> list[str]:
        return [answer for _ in range(int(times)) for answer in self._said(self._new())] or ["nothing"]

    def _new(self) -> Sequence[Block]:
        tail = self._tail
        if self.watcher is None:
            return tail.new()
        self.watcher.scan()
        new = list[Block]()
        while blocks := self.watcher.poll(1 << 20):
            new += blocks
        assert self.failures == []
        return sorted(new, key=lambda block: block.data)  # changes have no order

    def final(self) -> list[str]:
        return self._said(self._tail.new(final=True)) or ["nothing"]

    def after(self, seconds: str) -> None:
        self.now_s += float(seconds)

    def whole(self) -> str:
        whole, self.whole_scans = self.whole_scans, 0
        return f"{whole or 'no'} whole scan"

    def dangling(self) -> str:
        return "dangling " + (" ".join(sorted(self._follower.dangling)) or "none")

    def scan(self) -> None:
        self._follower.scan()

    def poll(self, *final: str) -> list[str]:
        blocks = self._follower.poll(1 << 20, final=bool(final))
        self._tail.blocks += blocks
        return [*self._said(blocks), "caught up" if self._follower.caught_up() else "not caught up"]

    def positions(self) -> str:
        return ", ".join(f"{each.path} {each.offset}" for each in self._follower.positions())

    def blocks(self) -> list[str]:
        """Returns places, bytes and headers of all that was read, with a number for each log."""
        logs = list(dict.fromkeys(block.identity for block in self._tail.blocks))
        return [
            f"{block.file.path} {block.offset} to {block.end} of log {logs.index(block.identity) + 1}"
            + (f" under {_short(block.file.header.decode())}" if block.file.header else "")
            for block in self._tail.blocks
        ]

    def where(self) -> list[str]:
        """Returns the present place of each log that was read."""
        logs = dict.fromkeys(block.identity for block in self._tail.blocks)
        return [str(self._follower.path_of(each) or "gone").removeprefix(f"{self.logs}/") for each in logs]

    def backlog(self) -> str:
        return "{} of {} bytes read, {} lost".format(*self._follower.backlog(), self._follower.lost_bytes)

    def unread(self) -> list[str]:
        return [f"unread {each.kind.name} {each.path}" for each in self._follower.unread()] or ["all read"]

    def problems(self) -> list[str]:
        return self._shown(self._tail.problems)

    def present(self) -> str:
        """Returns the logs that are there, with what tells those apart that begin alike."""
        found = {path: identity.partition("~")[2] for identity, path in self._follower.present().items()}
        return ", ".join(f"{path} ~{number}" if number else path for path, number in sorted(found.items()))

    def standing(self) -> str:
        """Returns the logs that readers without a memory find; all such readers find the same."""
        finder = {each.file.path for each in find_logs(self.logs, ["**/*"], has_header=False).values()}
        assert finder == {log.path for log in standing_logs(self.logs, Reading(), lambda problem: None)}
        return " and ".join(sorted(finder))

    def close(self) -> None:
        if self.watcher is not None:
            self.watcher.close()
            self.watcher = None
        if self.tail is not None:
            self.tail.close()

    @property
    def _tail(self) -> Tail:
        if self.tail is None:
            self.follow()
        assert self.tail is not None
        return self.tail

    @property
    def _follower(self) -> Any:
        return self._tail.follower

    def _said(self, blocks: Sequence[Block]) -> list[str]:
        lines = [line for block in blocks for line in block.data.split(b"\n")[:-1]]
        if self.varint:
            lines = [b64decode(line) for line in lines]
        told = [f"{each.kind.name} {each.path}" for each in self._tail.problems[self._told :]]
        self._told = len(self._tail.problems)
        skipped = [f"{each.length} bytes skipped at {each.offset}" for block in blocks for each in block.oversized]
        texts = [line.decode("latin-1").encode("unicode_escape").decode().replace(" ", "_") or "''" for line in lines]
        shown = _short(" ".join(texts))
        return [*([shown] if shown else []), *skipped, *told]
