"""The table of files: inodes as seen by the last scan, and the log each one holds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from photon.adapters.contract import Framing
from photon.adapters.logs.elsewhere import FoundFile, is_final
from photon.adapters.logs.identity import (
    COMPRESSED_SUFFIXES,
    HEAD_BYTES,
    Head,
    head_by_path,
    log_name,
    read_head,
    record_of,
)
from photon.adapters.logs.links import stat_log
from photon.adapters.logs.open_files import OpenFiles
from photon.adapters.logs.own_framing import settle
from photon.adapters.logs.problems import ProblemKind, ProblemReporter
from photon.adapters.logs.tracked_logs import TrackedFile
from photon.adapters.logs.unended_lines import RestRule, Writing, waits
from photon.config.clock import NS_PER_S

HEADS_AWAITED_MAX = 8
AT_REST_MIN_S = 1.0


def ends_in_middle(path: str) -> str:
    """Describes the end of a file whose source is ``cut_short``."""
    if path.endswith(COMPRESSED_SUFFIXES):
        return "the compressed stream is incomplete, or ends in the middle of a record"
    return "the file ends in the middle of a record"


class Files:
    """Stores the results of scans. ``changed`` receives the identity of each log affected by a change."""

    def __init__(
        self,
        directory: Path,
        sources: OpenFiles,
        problems: ProblemReporter,
        *,
        has_header: bool,
        framing: Framing,
        changed: Callable[[str], None],
        rest: RestRule | None = None,
        read_whole: Callable[[TrackedFile], Head | None] = lambda file: None,
        known_as: Callable[[TrackedFile, Head], str] = lambda file, head: head.identity,
        others: Callable[[str], bool] | None = None,
        by_path: bool = False,
    ) -> None:
        """``read_whole`` returns the head of a final file that an earlier process read to its end.

        ``by_path``: see ``Follower``. ``known_as`` returns the identity of the log that a file holds, under any name.
        ``others`` returns True for logs that another process reads; ``None`` means that there are none.
        """
        self._others = others
        self._others_grown: dict[tuple[int, int], None] = {}  # files of such logs that grew, the longest ago first
        self._directory = directory
        self._rest = rest
        self._sources = sources
        self._problems = problems
        self._has_header = has_header
        self._forward = framing.forward
        self._framing = framing
        self._changed = changed
        self._final = is_final(directory)
        self._by_path = by_path or self._final
        self._read_whole = read_whole
        self._known_as = known_as
        self.awaited: set[tuple[int, int]] = set()  # files whose first bytes are being fetched
        self.later: set[tuple[int, int]] = set()  # files examined only after ``awaited`` have arrived
        self._files: dict[tuple[int, int], TrackedFile] = {}
        self._paths: dict[str, TrackedFile] = {}
        self._claims: dict[str, dict[tuple[int, int], TrackedFile]] = {}
        self._of_record: dict[str, dict[str, None]] = {}  # record_of(identity) -> identities that files claim
        self._unfinished: set[tuple[int, int]] = set()  # files whose first record is incomplete

    def claims(self, identity: str) -> list[TrackedFile]:
        return sorted(self._claims.get(identity, {}).values(), key=lambda f: f.path)

    def claimed(self, record: str) -> Iterator[str]:
        """Yields identities of visible logs that begin with this record (``record_of``), newest first."""
        return reversed(self._of_record.get(record, {}))

    def another(self, identity: str, file: TrackedFile) -> TrackedFile | None:
        """Returns another file that claims this log."""
        return next((each for each in self._claims.get(identity, {}).values() if each is not file), None)

    def at(self, path: str) -> TrackedFile | None:
        """Returns the file that the last scan saw at this path."""
        return self._paths.get(path)

    def known(self, key: tuple[int, int]) -> TrackedFile | None:
        """Returns the file with this (device, inode)."""
        return self._files.get(key)

    def take_all(self, found: Sequence[FoundFile]) -> None:
        """Replaces the table of files by the result of a whole scan."""
        seen = {each.key for each in found}
        for file in [file for key, file in self._files.items() if key not in seen]:
            self.gone(file)
        files = self._files
        # Among copies found at once the one with the shortest name is the log: ``a.log``, not ``a.log.bak``.
        for each in sorted(found, key=lambda each: (len(each.path), each.path)):
            known = files.get(each.key)
            if known is None or (known.size, known.mtime_ns, known.path) != (each.size, each.mtime_ns, each.path):
                self.note(each)

    def gone(self, file: TrackedFile) -> None:
        """Notes that the file has been unlinked."""
        self._problems.gone(file.path)
        del self._files[file.key]
        if self._paths.get(file.path) is file:
            del self._paths[file.path]
        file.gone = True
        self._unfinished.discard(file.key)
        self.awaited.discard(file.key)
        self.later.discard(file.key)
        self._claim(file, None)

    def note(self, found: FoundFile) -> None:
        file = self._files.get(found.key)
        if file is None:
            file = self._files[found.key] = TrackedFile(found.path, found.key, forward=self._forward)
        elif (file.path, file.size, file.mtime_ns) == found[:1] + found[2:4]:
            return
        elif file.path != found.path:
            self._problems.gone(file.path)
            if self._paths.get(file.path) is file:
                del self._paths[file.path]
        # Growth is checked when the new bytes are read; any other change may mean another file on the same inode.
        grown = file.head is not None and found.path == file.path and found.size > file.size
        if file.compressed and found.size <= file.size and file.head is not None and found.path == file.path:
            self._sources.close(file.head.identity)  # its stream is at an offset in the previous contents
        file.path, file.size, file.mtime_ns, file.links = found.path, found.size, found.mtime_ns, found.links
        self._paths[file.path] = file
        if file.head is not None:
            self._changed(file.head.identity)
        if not grown:
            self.identify(file)
        elif self._others is not None and file.head is not None and self._others(file.head.identity):
            self._others_grown[file.key] = None

    def look_at_others(self, most: int) -> None:
        """Identifies again up to ``most`` files that grew and whose logs other processes read."""
        for key in list(islice(self._others_grown, most)):
            del self._others_grown[key]
            if (file := self._files.get(key)) is not None:
                self.identify(file)

    def look_again(self, file: TrackedFile) -> None:
        """Identifies a file again, because it holds other bytes than expected."""
        if self._final:
            self.identify(file)
            return
        try:
            st = stat_log(self._directory, file.path)
            file.size, file.mtime_ns = (st.st_size, st.st_mtime_ns) if (st.st_dev, st.st_ino) == file.key else (0, -1)
        except OSError:
            file.size, file.mtime_ns = 0, -1
        self.identify(file)

    def finish(self) -> None:
        """Treats unfinished first records as complete: nothing more will be written."""
        for key in sorted(self._unfinished):
            self.identify(self._files[key], final=True)

    def identify(self, file: TrackedFile, *, final: bool = False) -> None:
        """Reads the head. A file that cannot be read keeps its identity and is retried at the next scan."""
        before = file.head
        self._unfinished.add(file.key)
        if file.size == 0:
            self._claim(file, None)
            return
        if self._final:
            known = self._read_whole(file)
            if known is None and not (self._has_header or self._framing.first_line):
                known = head_by_path(file.path)
            if known is not None:
                self._unfinished.discard(file.key)
                self._claim(file, known)
                return
        final = final or self._final
        read = self._read_head_bytes(file)
        if read is None:
            file.mtime_ns = -1
            return
        data, damage, cut_short = read
        head = self._head(file, data, final=False)
        if head is None and final and cut_short and not damage and self.last_line_counts(file, 0):
            data, damage, cut_short = self._read_head_bytes(file, settled=True) or read
        if head is None and final and not damage:
            ended = self._head(file, data, final=True)
            begin = 0 if ended is None else ended.fingerprint_at
            if (ended is not None or cut_short) and not self.last_line_counts(file, begin):
                cut_short = False
            elif not cut_short:
                head = ended
        if head is None:
            self._claim(file, None)
            if damage or (final and cut_short):
                self._problems.tell(ProblemKind.DAMAGED, file.path, damage or ends_in_middle(file.path))
            return
        if self._by_path:
            identity = head.identity
        elif before is not None and before.same_record(head):
            identity = before.identity
        else:
            identity = self._known_as(file, head)
        self._claim(file, replace(head, identity=identity))
        self._unfinished.discard(file.key)

    def _head(self, file: TrackedFile, data: bytes, *, final: bool) -> Head | None:
        return read_head(
            file.path, data, has_header=self._has_header, final=final, framing=self._framing, by_path=self._by_path
        )

    def last_line_counts(self, file: TrackedFile, begin: int) -> bool:
        """True if the unfinished last line, which begins at ``begin``, counts as complete; reports it if it waits.

        Call it after reading the line, so that bytes written in the meantime are noticed.
        """
        if self._final:
            return True
        written_ns = self._written_ns(file)
        live = self._paths.get(log_name(file.path))
        live_ns = None if live is None or live is file else live.mtime_ns
        why = waits(self._rest, Writing(file.packed, written_ns, live_ns))
        if why:
            self._problems.tell(ProblemKind.UNENDED, file.path, f"the last line, at offset {begin}, {why}")
        return not why

    def is_at_rest(self, file: TrackedFile) -> bool:
        """True if nothing was written for so long that a record counts as complete which only a next line would end.

        Call it after reading the record.
        """
        if self._rest is None:
            return False
        before_ns = self._rest.now_ns() - int(max(self._rest.after_s, AT_REST_MIN_S) * NS_PER_S)
        return file.mtime_ns <= before_ns and self._written_ns(file) <= before_ns

    def _written_ns(self, file: TrackedFile) -> int:
        with contextlib.suppress(OSError):
            st = stat_log(self._directory, file.path)
            return st.st_mtime_ns if (st.st_dev, st.st_ino) == file.key else file.mtime_ns
        return file.mtime_ns

    def hold(self, file: TrackedFile, identity: str) -> None:
        """Assigns a file to the log ``identity``, which begins like the log that the file's head identifies."""
        assert file.head is not None
        self._claim(file, replace(file.head, identity=identity))

    def _claim(self, file: TrackedFile, head: Head | None) -> None:
        """Assigns a file to a log; ``None`` assigns it to none."""
        if file.head is not None:
            holders = self._claims.get(file.head.identity, {})
            holders.pop(file.key, None)
            if not holders and self._claims.pop(file.head.identity, None) is not None:
                self._of_record[record_of(file.head.identity)].pop(file.head.identity)
                if not self._of_record[record_of(file.head.identity)]:
                    del self._of_record[record_of(file.head.identity)]
            self._changed(file.head.identity)
        if not file.gone:  # a deleted file may still be read through its descriptor
            file.head = head
        if head is not None:
            self._claims.setdefault(head.identity, {})[file.key] = file
            self._of_record.setdefault(record_of(head.identity), {})[head.identity] = None
            self._changed(head.identity)

    def _read_head_bytes(self, file: TrackedFile, *, settled: bool = False) -> tuple[bytes, str, bool] | None:
        """Returns (the first bytes, the damage, True if the file is cut short); ``None`` if it cannot be read now."""
        if len(self.awaited) >= HEADS_AWAITED_MAX and file.key not in self.awaited:
            self.later.add(file.key)
            return None
        self.later.discard(file.key)
        source = self._sources.open(file)
        if source is None:
            return None
        try:
            data = source.read(0, HEAD_BYTES)
            if settled and settle(source):
                data = source.read(0, HEAD_BYTES)
            self.awaited.discard(file.key)
            self._problems.solved(ProblemKind.UNREADABLE, file.path)
            return data, source.damage(), source.cut_short()
        except BlockingIOError:
            self.awaited.add(file.key)
            return None
        except OSError as err:
            self.awaited.discard(file.key)
            self._problems.tell(ProblemKind.UNREADABLE, file.path, f"cannot be read ({err.strerror})")
            return None
        finally:
            source.close()
