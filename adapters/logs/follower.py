"""Follows all logs of a directory: new, growing, rolled, renamed, truncated, replaced and compressed files.

Two kinds of state (``tracked``): a ``TrackedFile`` is an inode with a name, as seen by the last scan, and refers to
the log it holds; a ``TrackedLog`` is a stream of bytes under one identity: how far it has been read, and from which
file. A scan matches them; a poll reads. When in doubt a log is read again from its start: ids make duplicates
harmless, while a skipped line is lost.

A scan covers the whole directory, or only the paths where a change is known; the other logs then cost nothing.

Not thread-safe: one caller at a time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from photon.adapters.contract import LINES, Framing
from photon.adapters.logs import elsewhere
from photon.adapters.logs.api import Block, LogPosition
from photon.adapters.logs.assignment import Logs
from photon.adapters.logs.discovery import SeenFiles, check_directory, compile_patterns, discover, look_at
from photon.adapters.logs.elsewhere import FoundFile
from photon.adapters.logs.files import Files
from photon.adapters.logs.identity import ALIKE_MARK, Head
from photon.adapters.logs.lag import WORST, Lag, LogReading, Unread, lag_of_all, mark, read_of, readings_of, unread_of
from photon.adapters.logs.links import Links
from photon.adapters.logs.open_files import OpenFiles
from photon.adapters.logs.problems import UNREAD, LogDirectoryError, Problem, ProblemKind, ProblemReporter
from photon.adapters.logs.reading import LogReader
from photon.adapters.logs.same_beginnings import Alike
from photon.adapters.logs.tracked_logs import TrackedFile, TrackedLog
from photon.adapters.logs.unended_lines import RestRule

LOOKED_AT_ONCE = 200  # files of others examined at a time
AWAITED_MAX = 8  # logs whose bytes are being fetched from elsewhere, before reading pauses until they arrive
# Bytes read from one plain file before the next one's turn. Compressed files are read through: returning to one
# may require inflating it again from its start.
TURN_BYTES = 16 << 20


class Follower:
    """Returns blocks of whole records of every log below a directory."""

    def __init__(
        self,
        directory: Path,
        *,
        patterns: Sequence[str] = ("**/*",),
        has_header: bool,
        framing: Framing = LINES,
        max_record: int = 1 << 20,
        positions: Iterable[LogPosition] = (),
        report: Callable[[Problem], None] | None = None,
        enter: Callable[[str], None] = lambda path: None,
        mine: Callable[[str], bool] | None = None,
        rest: RestRule | None = None,
        hurried: bool = False,
        links: Sequence[str] = (),
        by_path: bool = False,
    ) -> None:
        """``positions``: where reading of each known log resumes.

        ``enter`` is called with each directory before it is listed, and with each link to a file (relative paths).
        ``mine``: True for identities of logs to read here, the same for all logs that begin with the same record;
        ``None`` means all. ``rest``: decides if a last line without line end counts as complete (``poll``); ``None``
        means always. ``hurried``: bytes fetched from elsewhere are returned by a later ``poll``. ``links``:
        directories that links may lead into. ``by_path``: each path is permanently one log, also if it begins like
        another one. Raises LogDirectoryError.
        """
        check_directory(directory)
        if max_record < 1:
            raise ValueError(f"max_record must be at least 1, not {max_record}")
        self._directory = directory
        self._patterns = compile_patterns(patterns)
        self._enter = enter
        self._links = Links(directory, links)
        self._problems = ProblemReporter(report)
        self._touched: set[str] = set()
        self._mine = mine
        self._sources = OpenFiles(directory, self._problems, framing, links)
        self._files = Files(
            directory,
            self._sources,
            self._problems,
            has_header=has_header,
            framing=framing,
            changed=self._touched.add if mine is None else self._touch_mine,
            rest=rest,
            read_whole=lambda file: self._logs.read_whole(file),
            known_as=self._known_as,
            others=None if mine is None else (lambda identity: not mine(identity)),
            by_path=by_path,
        )
        self._there = elsewhere.elsewhere(directory)
        self._final = self._there is not None and self._there.final
        self._seen_ns = 0  # elsewhere: files in the last scan are complete as of this time
        self._version = -1  # elsewhere: version at the last scan
        self._hurried = hurried and self._final
        self._awaiting = False  # the last read ended with bytes that are being fetched
        self._listed = True  # elsewhere: the list of files is not being fetched
        self._logs = Logs(positions, self._touched, self._sources, self._problems)
        self._alike = Alike(self._files, self._logs, self._sources, self._problems)
        self._reader = LogReader(
            self._files,
            self._logs,
            self._alike,
            self._sources,
            self._problems,
            max_record=max_record,
            framing=framing,
            ready=self._now_ready,
            touch=self._touched.add,
            whole_files=self._final,
        )
        self._ready: deque[TrackedLog] = deque()
        self._behind: dict[str, TrackedLog] = {}  # logs that may have unread bytes
        self._open: dict[str, TrackedLog] = {}  # logs whose last record is whole once their files are at rest
        self._turn = 0  # bytes read from the log in front
        self._whole = False  # the last scan of the whole directory worked

    # -- queries of the reader ---------------------------------------------------------------------------------------
    @property
    def problems(self) -> Counter[ProblemKind]:
        """Counts of problems by kind."""
        return self._problems.counts

    @property
    def lost_bytes(self) -> int:
        """Bytes on disk that were lost before they were read, because their files vanished."""
        return self._logs.lost_bytes

    def seen_ns(self, scanned_ns: int) -> int:
        """Returns the time up to which a scan that began at ``scanned_ns`` (wall clock) has seen everything."""
        return scanned_ns if self._there is None else min(scanned_ns, self._seen_ns)

    @property
    def moves(self) -> int:
        """A number that grows whenever the ``path_of`` any log may have changed."""
        return self._logs.moves

    @property
    def restless(self) -> bool:
        """True if the next scan has something to examine even if no file changes."""
        waits = self._touched or self._sources.missed or self._logs.restless or self._alike.unsure
        return bool(waits or self._files.awaited or self._files.later or not self._whole)

    @property
    def dangling(self) -> set[str]:
        """Links without a target at the last scan: targets may appear without notification."""
        return self._links.dangling

    def unread(self, kinds: Sequence[ProblemKind] = UNREAD) -> list[Problem]:
        """Returns existing files that are not read completely."""
        return self._problems.unsolved(kinds)

    def speak(self) -> None:
        """Reports logs that begin alike. Call it once events without an id of their own have been read."""
        self._problems.speak()

    def positions(self) -> list[LogPosition]:
        return [log.position() for log in self._logs.all.values()]

    def path_of(self, identity: str) -> Path | None:
        """Returns the file that holds a log's bytes now; ``None`` if it is gone or was never seen."""
        log = self._logs.all.get(identity)
        if log is None or log.file is None or log.file.gone:
            return None
        return self._directory / log.file.path

    def present(self) -> dict[str, str]:
        """Returns identity -> path of each log that has a file."""
        logs = self._logs.all.values()
        return {log.identity: log.file.path for log in logs if log.file is not None and not log.file.gone}

    def readings(self) -> list[LogReading]:
        """Returns how far each log has been read, by path."""
        return readings_of(self._logs.all.values())

    def caught_up(self) -> bool:
        """True if everything the last scan saw has been returned; partial last lines wait."""
        waits = self._ready or self._sources.missed or self._files.awaited or self._files.later
        return self._listed and not waits

    def backlog(self) -> tuple[int, int]:
        """Returns (bytes on disk read, bytes on disk known) for existing files."""
        known = self._logs.known_bytes
        for log in self._behind.values():
            if log.file is not None and not log.file.gone:
                known -= log.counted - read_of(log)
        return known, self._logs.known_bytes

    def lag(self, worst: int = WORST) -> Lag:
        """Returns how far behind reading is, in bytes and in time; names the ``worst`` logs."""
        return lag_of_all(len(self._logs.all), self._behind.values(), worst)

    def unread_now(self) -> Unread:
        """Returns the bytes seen by the last scan and not yet returned.

        Call it right after the scan. A last line without line end, and files known to be gone, are not waited for.
        """
        doubt = ""
        if not self._whole:
            doubt = "the log directory could not be listed"
        elif problems := self.unread():
            doubt = str(problems[0])
        elif self.restless:
            doubt = "new files are not identified yet"
        return unread_of(self._behind.values(), doubt)

    # -- logs of others --------------------------------------------------------------------------------------------
    def _touch_mine(self, identity: str) -> None:
        if self._mine is None or self._mine(identity):
            self._touched.add(identity)

    def _known_as(self, file: TrackedFile, head: Head) -> str:
        ours = self._mine is None or self._mine(head.identity)
        return self._alike.recognise(file, head) if ours else head.identity

    def look_at_others(self) -> None:
        """Examines the first bytes of some grown files of other readers: a log of ours may have replaced theirs.

        A file's own reader notices at once if a longer one replaced it on the same inode. Final files are never
        replaced.
        """
        if self._mine is None or self._final:
            return
        self._files.look_at_others(LOOKED_AT_ONCE)
        if self._touched:
            self._match()

    def close(self) -> None:
        self._sources.close_all()

    # -- scan ------------------------------------------------------------------------------------------------------
    def scan(self, changed: Collection[str] | None = None, deleted: Collection[str] = ()) -> bool:
        """Looks for new, renamed, grown, shrunk and vanished files. Returns True if it scanned the whole directory.

        ``changed``: only these paths (for directories: and all below them) have changed since the last scan;
        ``deleted``: names known to be removed permanently. If in doubt, scans the whole directory, with one stat per
        file.
        """
        if changed is not None and not self.restless and self._scan_paths(changed, deleted):
            return False
        if self._hurried:
            with elsewhere.hurried():
                return self._scan_all()
        return self._scan_all()

    def _scan_all(self) -> bool:
        settled = not self.restless and not self.unread()
        self._sources.scanned()
        try:
            found = self._discovered(settled)
            self._listed = True
        except BlockingIOError:
            self._whole = self._listed = False
            return True
        except OSError as err:
            self._whole, self._listed = False, True
            self._problems.tell(ProblemKind.UNREADABLE, ".", f"the log directory cannot be listed ({err.strerror})")
            return True
        self._whole = True
        self._problems.solved(ProblemKind.UNREADABLE, ".")
        front = self._ready[0] if self._ready else None
        if found is not None:
            self._files.take_all(found)
        self._match()
        self._logs.tell_cut_short()
        self._make_ready(front)
        self._sources.close_idle(self._logs.all)
        return True

    def _discovered(self, settled: bool) -> list[FoundFile] | None:
        """Returns the files; ``None`` if the listing is unchanged. ``settled``: checks that first. Raises OSError."""
        if self._there is not None:
            while not (seen_ns := self._there.whole_ns()):
                self._there.version()  # waits until all were listed
            version = self._there.version()
            self._seen_ns = seen_ns  # read first: later it may cover more files than were listed
            if settled and version == self._version:
                return None
            self._version = version
        return discover(self._directory, self._patterns, self._problems, self._enter, self._links)

    def _scan_paths(self, paths: Collection[str], deleted: Collection[str]) -> bool:
        """Scans only these paths. Returns False, without having changed anything, if a full scan is needed."""
        try:
            seen = look_at(self._directory, self._patterns, self._problems, paths, self._enter, self._links)
        except OSError:
            return False
        named = {each.key for each in seen.found if each.rank < 3}
        if any(each.key not in named and self._files.known(each.key) is None for each in seen.found):
            return False  # in doubt: a new file whose link was not examined
        found = self._one_name_each(seen)
        gone = self._gone(found, seen.missing, deleted)
        if gone is None:
            return False
        for file in gone:
            self._files.gone(file)
        for each in found:
            self._files.note(each)
        if self._touched:
            self._match()
        return True

    def _one_name_each(self, seen: SeenFiles) -> list[FoundFile]:
        """Keeps one name for each file: its current one, unless that is gone."""
        now = {each.path: each.key for each in seen.found}
        taken: dict[tuple[int, int], FoundFile] = {}
        for each in sorted(seen.found, key=lambda f: (f.rank, f.path)):
            file = self._files.known(each.key)
            if file is not None and file.path not in seen.missing and now.get(file.path, each.key) == each.key:
                each = each._replace(path=file.path)
            taken.setdefault(each.key, each)
        return list(taken.values())

    def _gone(
        self, found: Sequence[FoundFile], missing: Sequence[str], deleted: Collection[str]
    ) -> list[TrackedFile] | None:
        """Returns unlinked files; ``None`` if one may have another name."""
        keys = {each.key for each in found}
        gone = []
        for path in (*missing, *(each.path for each in found)):
            file = self._files.at(path)
            if file is not None and file.key not in keys:
                if file.links > 1 or path not in deleted:
                    return None
                gone.append(file)
        return gone

    def _match(self, *, final: bool = False) -> None:
        self._alike.tell_apart(self._touched, final=final)
        for log in self._logs.match(self._files):
            if not log.is_done():
                mark(log)
                self._behind[log.identity] = log
                self._now_ready(log)

    def _now_ready(self, log: TrackedLog) -> None:
        if not log.queued:
            log.queued = True
            self._ready.append(log)

    def _make_ready(self, front: TrackedLog | None) -> None:
        """Queues all logs that may be read, in the order of paths; ``front`` keeps its turn."""
        self._behind = {identity: log for identity, log in self._behind.items() if not log.is_done()}
        self._queue(self._behind.values())
        if front is not None and front.queued:
            while self._ready[0] is not front:
                self._ready.rotate(-1)
        else:
            self._turn = 0

    def _queue(self, logs: Iterable[TrackedLog]) -> None:
        for log in self._ready:
            log.queued = False
        self._ready = deque(sorted(logs, key=self._place))
        for log in self._ready:
            log.queued = True

    def _place(self, log: TrackedLog) -> tuple[str, str, int]:
        """Returns a sort key: the path, but a log that begins like another comes after it, to be compared."""
        first, _, number = log.identity.partition(ALIKE_MARK)
        return self._logs.all.get(first, log).path, first, int(number or 0)

    # -- poll ------------------------------------------------------------------------------------------------------
    def poll(self, max_bytes: int, *, final: bool = False) -> list[Block]:
        """Returns the next blocks, about ``max_bytes`` in total (at least one block); empty when all has been read.

        Logs take turns. ``final``: nothing more will be appended, so last lines without line end are whole if their
        files are at rest (``unended``). Only valid when ``caught_up``.
        """
        while True:
            if final and not self._ready:
                self._finish()
            if self._hurried and not final:
                with elsewhere.hurried():
                    blocks = self._read_ready(max_bytes, final)
            else:
                blocks = self._read_ready(max_bytes, final)
            if not blocks and final and self._awaiting:  # still being fetched: it is read, or fails
                continue
            if blocks or not self._sources.missed:
                return blocks
            self.scan()  # finds files renamed since the last scan, without which nothing is caught up

    def _read_ready(self, max_bytes: int, final: bool) -> list[Block]:
        blocks: list[Block] = []
        got, awaiting = 0, list[TrackedLog]()
        for log in list(self._open.values()):
            if log.file is None:
                del self._open[log.identity]
            elif self._files.is_at_rest(log.file):
                self._now_ready(log)
        while self._ready and got < max_bytes:
            log = self._ready[0]
            pieces, more = self._reader.read(log, final or self._final)
            for piece in pieces:
                blocks += self._reader.blocks(log, piece)
                if self._reader.awaiting:
                    break
                got += piece.end - piece.offset
                self._turn += piece.end - piece.offset
            if self._reader.awaiting:  # try the next log that is not being fetched, else return later
                awaiting.append(self._ready.popleft())
                self._turn = 0
                if len(awaiting) >= AWAITED_MAX:
                    break
                continue
            self._open.pop(log.identity, None)
            if self._reader.opens_at_rest:
                self._open[log.identity] = log
            if not more:
                self._ready.popleft().queued = False
                self._turn = 0
                if log.is_done():
                    self._behind.pop(log.identity, None)
                    log.marks.clear()
            elif self._turn >= TURN_BYTES and log.file is not None and not log.file.compressed:
                self._ready.rotate(-1)
                self._turn = 0
        self._awaiting = bool(awaiting)
        self._ready.extendleft(reversed(awaiting))  # to the front, before others are fetched and these are dropped
        return blocks

    def _finish(self) -> None:
        """Accepts last lines, and reports problems that a later scan might have explained."""
        self._files.finish()
        self._match(final=True)
        self._logs.tell_all_rivals()
        self._queue([*self._ready, *(log for log in self._logs.all.values() if not log.is_done(final=True))])


__all__ = ["Block", "Follower", "LogDirectoryError", "LogPosition", "Problem", "ProblemKind"]
