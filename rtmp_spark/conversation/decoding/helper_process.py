"""Decodes a direction in a second process, so that one connection can use a second core.

The state of a decoder is a value, so a direction can move: a helper process receives the state and then the runs of the
direction, and returns their facts. Before anything else happens to the direction (a gap, its end, saving its state) it
moves back, with the state that the helper has by then. Rows do not depend on it: a run in the helper counts as bytes
that are not decoded yet, for which conversations wait anyway. Bytes of runs are passed in shared memory, everything
else through pipes. If a helper dies, the analysis fails with a RuntimeError.
"""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

from rtmp_spark.capture.memory_tuning import keep_freed_memory, rare_collections
from rtmp_spark.capture.tcp.stream_items import Run
from rtmp_spark.codec.limits import SHARED_MEMORY_BYTES
from rtmp_spark.conversation.decoding.direction_decoder import DirectionDecoder, DirectionState
from rtmp_spark.conversation.facts import Facts, Unread

_START = "from rtmp_spark.conversation.decoding.helper_process import serve; serve({}, {})"
_BEGIN, _RUN, _STATE = "begin", "run", "state"  # requests to the helper


class HelperProcess:
    """A running helper. It answers each run before it gets the next one, so neither side waits on a full pipe."""

    def __init__(self) -> None:
        import subprocess  # here, because a small capture is analyzed faster than these are imported
        import tempfile

        shared = Path("/dev/shm")
        with tempfile.TemporaryFile(dir=shared if shared.is_dir() else None) as file:
            os.posix_fallocate(file.fileno(), 0, SHARED_MEMORY_BYTES)  # on a full disk, writing would raise SIGBUS
            self._memory = mmap.mmap(file.fileno(), SHARED_MEMORY_BYTES)
            paths = os.pathsep.join(path for path in sys.path if path and isinstance(path, str))
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START.format(file.fileno(), SHARED_MEMORY_BYTES)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=(file.fileno(),),
                env=os.environ | {"PYTHONPATH": paths},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, request: str, *values: object) -> None:
        assert self._process.stdin is not None
        try:
            pickle.dump((request, values), self._process.stdin, 5)
            self._process.stdin.flush()
        except OSError as error:
            raise RuntimeError("the helper process that decodes a direction has died") from error

    def send_run(self, run: Run) -> None:
        size = len(run.data)
        fits = size <= len(self._memory)
        if fits:
            self._memory[:size] = run.data
        data = size if fits else run.data
        self.send(_RUN, run.direction, run.offset, data, run.seg_offsets, run.seg_frames, run.seg_ts_ns)

    def receive_facts(self) -> tuple[Facts, Unread | None]:
        """The answer to a run."""
        return cast("tuple[Facts, Unread | None]", self._receive())

    def receive_state(self) -> DirectionState:
        """The answer to a request for the state."""
        return cast("DirectionState", self._receive())

    def _receive(self) -> object:
        assert self._process.stdout is not None
        try:
            answer: object = pickle.load(self._process.stdout)
            return answer
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise RuntimeError("the helper process that decodes a direction has died") from error

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.wait()
        self._memory.close()


class HelperPool:
    """At most `most` helper processes, each started when it is first needed."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._idle: list[HelperProcess] = []
        self.started: list[HelperProcess] = []

    def take(self) -> HelperProcess | None:
        """A helper that is idle; None if all are busy or none can be started."""
        if self._idle:
            return self._idle.pop()
        if self._left <= 0:
            return None
        self._left -= 1
        try:
            self.started.append(HelperProcess())
        except (OSError, TypeError, ValueError, AttributeError):  # no space, no processes, or not POSIX
            self._left = 0
            return None
        return self.started[-1]

    def give_back(self, helper: HelperProcess) -> None:
        self._idle.append(helper)

    def close(self) -> None:
        for helper in self.started:
            helper.close()


class RemoteDirection:
    """A direction in a helper process. It receives runs, and their facts are added to `decoder.facts`; everything else
    needs `bring_back` first."""

    def __init__(self, decoder: DirectionDecoder, helper: HelperProcess, pool: HelperPool) -> None:
        self._decoder, self._pool = decoder, pool
        self.helper = helper
        self._awaited: Unread | None = None  # lower bound of the facts of the run that the helper is decoding
        self._unread = decoder.unread
        helper.send(_BEGIN, decoder.state(), decoder.options)

    def receive_run(self, run: Run) -> None:
        self.wait_for_facts()
        self.helper.send_run(run)
        begins = Unread(int(run.seg_frames[0]), int(run.seg_ts_ns.min()) // 1000)
        self._awaited = _earlier(begins, self._unread)

    def wait_for_facts(self) -> None:
        """Wait until the helper has decoded the run it was sent."""
        if self._awaited is not None:
            self._awaited = None
            facts, self._unread = self.helper.receive_facts()
            self._decoder.facts.add(facts)

    def catch_up(self, since_us: int) -> None:
        """Wait for the helper if facts older than `since_us` may be missing."""
        if self._awaited is not None and self._awaited.ts < since_us:
            self.wait_for_facts()

    @property
    def unread(self) -> Unread | None:
        """As `DirectionDecoder.unread`; a run in the helper is not decoded yet."""
        return self._awaited or self._unread

    @property
    def buffered_since_us(self) -> int | None:
        unread = self.unread
        return None if unread is None else unread.ts

    def bring_back(self) -> DirectionDecoder:
        """The decoder with the state that the helper has after the last run; the helper becomes idle."""
        self.wait_for_facts()
        self.helper.send(_STATE)
        decoder = DirectionDecoder.resume(self.helper.receive_state(), self._decoder.options)
        decoder.facts = self._decoder.facts
        self._pool.give_back(self.helper)
        return decoder


def _earlier(one: Unread, other: Unread | None) -> Unread:
    return one if other is None else Unread(min(one.at, other.at), min(one.ts, other.ts))


def serve(memory_fd: int, memory_bytes: int) -> None:
    """The helper's side: answers requests until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the process that started this one
    memory = mmap.mmap(memory_fd, memory_bytes, prot=mmap.PROT_READ)
    keep_freed_memory()
    try:
        with rare_collections():
            _answer_requests(memory, sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:  # the other process is gone
        os._exit(0)


def _answer_requests(memory: mmap.mmap, requests: IO[bytes], answers: IO[bytes]) -> None:
    decoder: DirectionDecoder | None = None
    while True:
        try:
            request, values = pickle.load(requests)
        except EOFError:
            return
        if request == _BEGIN:
            state, options = values
            decoder = DirectionDecoder.resume(state, options)
            continue
        assert decoder is not None
        answer: object
        if request == _RUN:
            direction, offset, data, *places = values
            data = memory[:data] if isinstance(data, int) else data
            decoder.receive_run(Run(None, direction, offset, data, *places))  # type: ignore[arg-type]
            answer = decoder.take_facts(), decoder.unread
        else:
            answer = decoder.state()
        answers.write(pickle.dumps(answer, 5))  # in one piece: writing while pickling would block on a full pipe
        answers.flush()
