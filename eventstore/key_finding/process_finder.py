"""Finds keys in another process, on another core, because finding keys is half of a reader's work. Threads would
share one interpreter: ten million records took 10 s with one thread, 12 s with two, and 6.5 s with a process. It pays
off if much must be read before anything else is done (``photon join``). If the process fails, the reader finds the
keys itself.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeGuard

import msgspec

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter
from photon.adapters.logs.api import Block
from photon.config.decoding import DECODE_ERRORS
from photon.eventstore.block_keys import BlockKeys, block_keys
from photon.eventstore.key_finding.process import (
    MEMORY_BYTES,
    SLOTS,
    FindKeys,
    JoinFormats,
    KeysFound,
    SharedSlots,
    framed,
)

# Number of blocks held back: the process has work while the reader stores earlier ones, and the reader has work while
# it waits for the process.
AHEAD = 10
# A process that has not answered for this time is given up; a block takes it some 30 ms, its start half a second.
PATIENCE_S = 10.0
# Messages under way must fit into a pipe, so that sending never blocks: SLOTS times this, and a path.
HEADER_BYTES_MAX = 2 << 10


@dataclass(slots=True, eq=False)
class _GivenBlock:
    block: Block
    slot: int = -1
    keys: BlockKeys | None = None

    def is_left(self) -> bool:
        """True if no thread or process has begun to find its keys."""
        return self.slot < 0 and self.keys is None


def can_use_process(adapter: Adapter) -> TypeGuard[ConfiguredAdapter]:
    """True if a process can find this adapter's keys.

    Only configured adapters qualify; a custom one may keep state, or load slowly.
    """
    if sys.platform != "linux" or type(adapter) is not ConfiguredAdapter:
        return False
    return adapter.primary_framing.splittable and adapter.foreign_framing.splittable


@dataclass(eq=False)
class ProcessKeyFinder:
    """A KeyFinder that returns no keys, only hashes: for a file map that needs none (MapKind.DENSE).

    ``worth``: called when the first block is given; if it returns False, no process is started. ``report`` receives
    one-line problems.
    """

    adapter: ConfiguredAdapter
    worth: Callable[[], bool]
    report: Callable[[str], None]
    patience_s: float = PATIENCE_S  # seconds without an answer after which the process is given up

    def __post_init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._begun = False
        self._given: deque[_GivenBlock] = deque()
        self._asked: deque[_GivenBlock] = deque()
        self._free = list(range(SLOTS))
        self._received = b""
        self._told = msgspec.msgpack.Decoder(KeysFound)
        self._answers = select.poll()

    @property
    def pid(self) -> int | None:
        """The process's id; ``None`` while no process runs."""
        return None if self._process is None else self._process.pid

    def give(self, block: Block) -> None:
        if not self._begun:
            self._begun = True
            if self.worth():
                self._begin()
        while self._answered():
            self._receive()
        given = _GivenBlock(block)
        self._given.append(given)
        fits = len(block.file.header) <= HEADER_BYTES_MAX
        if self._process is not None and self._free and fits and self._slots.put_data(self._free[-1], block.data):
            given.slot = self._free.pop()
            self._asked.append(given)
            self._send(framed(FindKeys(given.slot, len(block.data), block.file.path, block.file.header)))

    def found(self, *, everything: bool) -> Iterator[tuple[Block, BlockKeys]]:
        while self._given and (everything or len(self._given) > AHEAD or self._process is None):
            yield self._given[0].block, self._keys_of_first()

    def _keys_of_first(self) -> BlockKeys:
        """Removes the first block and returns its keys. Until they arrive, finds keys of later blocks here."""
        first = self._given[0]
        while first.keys is None:
            if first.slot < 0:
                self._find_here(first)
            elif not self._answered() and (other := next(filter(_GivenBlock.is_left, self._given), None)):
                self._find_here(other)
            else:
                self._receive()
        self._given.popleft()
        return first.keys

    def _find_here(self, given: _GivenBlock) -> None:
        given.keys = block_keys(self.adapter, given.block.data, given.block.file)

    def close(self) -> None:
        self._begun = True
        self._end()

    # -- the process -------------------------------------------------------------------------------------------------
    def _begin(self) -> None:
        try:
            fd = os.memfd_create("photon-keys")  # /dev/shm is 64 MiB in a container, and writing beyond that faults
            with open(fd, "r+b") as shared:
                shared.truncate(MEMORY_BYTES)
                self._slots = SharedSlots(fd)
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "photon.eventstore.key_finding.process", str(fd)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    pass_fds=(fd,),
                    start_new_session=True,  # Ctrl-C reaches the parent; its input then ends
                )
        except OSError as err:
            self.report(f"keys are found in the reader's own process: no other process could be started: {err}")
            return
        assert self._process.stdout is not None
        self._answers.register(self._process.stdout, select.POLLIN)
        self._send(framed(JoinFormats(self.adapter.primary_config, self.adapter.foreign_config)))

    def _send(self, message: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(message)
            self._process.stdin.flush()
        except OSError as err:
            self._give_up(f"it accepts no input: {err.strerror}")

    def _answered(self) -> bool:
        """True if an answer can be received without waiting."""
        return self._process is not None and bool(self._asked) and (self._whole() or self._readable(0.0))

    def _whole(self) -> bool:
        return len(self._received) >= 4 and len(self._received) >= self._answer_end()

    def _answer_end(self) -> int:
        return 4 + int.from_bytes(self._received[:4], "little")

    def _readable(self, patience_s: float) -> bool:
        return bool(self._answers.poll(1e3 * patience_s))

    def _receive(self) -> None:
        """Receives one answer, or abandons the process."""
        assert self._process is not None
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        while not self._whole():
            if not self._readable(self.patience_s):
                self._give_up(f"it has not answered for {self.patience_s:g} s")
                return
            if not (more := os.read(fd, 1 << 16)):
                self._give_up("it has ended")
                return
            self._received += more
        end = self._answer_end()
        try:
            told = self._told.decode(self._received[4:end])
        except DECODE_ERRORS as err:
            self._give_up(f"its answer cannot be decoded: {err}")
            return
        self._received = self._received[end:]
        given = self._asked.popleft()
        self._free.append(given.slot)
        if told.records >= 0:
            given.keys = self._slots.found(given.slot, told.records, told.bad)
        given.slot = -1

    def _give_up(self, why: str) -> None:
        self.report(f"keys are found in the reader's own process from now on; the key process was abandoned: {why}")
        self._end()

    def _end(self) -> None:
        """Ends the process. This thread then finds the keys of its unanswered blocks."""
        for given in self._asked:
            given.slot = -1
        self._asked.clear()
        self._received = b""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdout is not None
        self._answers.unregister(process.stdout)
        process.kill()
        process.communicate()
        self._slots.close()
