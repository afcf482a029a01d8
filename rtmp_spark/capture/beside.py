"""A direction decoded in a process of its own, one run behind: how one connection uses a second core.

A decoder's state is a value, so a direction can go out: a helper gets its state and then its runs, facts come back, and
before anything else happens to it (a gap, the end, a state to be saved) it comes home with the state that the helper
has by then. Rows do not depend on it: a run that is out counts as bytes that nobody has read yet, for which
conversations wait anyway. Bytes go through shared memory, all else through pipes. A helper that dies takes the work of
its caller with it, as a worker that dies does.
"""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from rtmp_spark.capture.direction import DirectionDecoder
from rtmp_spark.capture.items import Run
from rtmp_spark.capture.memory import keep_freed_memory, rare_collections

LONG_RUN = 1 << 20  # bytes of one window that are worth the way
_ROOM = 16 << 20  # of shared memory; a longer run goes through the pipe
_START = "from rtmp_spark.capture.beside import serve; serve({}, {})"


class Helper:
    """The other process. It answers one run before it gets the next, so nobody waits for a full pipe for ever."""

    def __init__(self) -> None:
        shared = Path("/dev/shm")
        with tempfile.TemporaryFile(dir=shared if shared.is_dir() else None) as file:
            os.posix_fallocate(file.fileno(), 0, _ROOM)  # or a full disk would be a signal that ends us
            self._room = mmap.mmap(file.fileno(), _ROOM)
            paths = os.pathsep.join(path for path in sys.path if path and isinstance(path, str))
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START.format(file.fileno(), _ROOM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=(file.fileno(),),
                env=os.environ | {"PYTHONPATH": paths},
            )

    def tell(self, word: str, *values: Any) -> None:
        assert self._process.stdin is not None
        try:
            pickle.dump((word, values), self._process.stdin, 5)
            self._process.stdin.flush()
        except OSError as error:
            raise RuntimeError("the process that decodes beside this one has died") from error

    def tell_run(self, run: Run) -> None:
        size = len(run.data)
        fits = size <= len(self._room)
        if fits:
            self._room[:size] = run.data
        data = size if fits else run.data
        self.tell("run", run.direction, run.offset, data, run.seg_offsets, run.seg_frames, run.seg_ts_ns)

    def answer(self) -> Any:
        assert self._process.stdout is not None
        try:
            return pickle.load(self._process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise RuntimeError("the process that decodes beside this one has died") from error

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.wait()
        self._room.close()


class Helpers:
    """At most so many, each started when it is first asked for."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._all: list[Helper] = []
        self._idle: list[Helper] = []

    def take(self) -> Helper | None:
        if self._idle:
            return self._idle.pop()
        if self._left <= 0:
            return None
        self._left -= 1
        try:
            self._all.append(Helper())
        except (OSError, TypeError, ValueError, AttributeError):  # no room, no process, no such system: it goes without
            self._left = 0
            return None
        return self._all[-1]

    def give_back(self, helper: Helper) -> None:
        self._idle.append(helper)

    def close(self) -> None:
        for helper in self._all:
            helper.close()


class Beside:
    """A direction that is out. It takes runs, and their facts arrive in its decoder; for all else it comes `home`."""

    def __init__(self, decoder: DirectionDecoder, helper: Helper, helpers: Helpers) -> None:
        self._decoder, self._helper, self._helpers = decoder, helper, helpers
        self._under_way: tuple[int, int] | None = None  # packet and time that its facts are not older than
        self._unread = decoder.unread
        helper.tell("begin", decoder.state(), decoder.settings)

    def receive_run(self, run: Run) -> None:
        self.hear()
        self._helper.tell_run(run)
        begins = int(run.seg_frames[0]), int(run.seg_ts_ns.min()) // 1000
        self._under_way = _earlier(begins, self._unread)

    def hear(self) -> None:
        """Wait for the facts of the run that is under way."""
        if self._under_way is not None:
            self._under_way = None
            told, self._unread = self._helper.answer()
            self._decoder.facts.add(told)

    def catch_up(self, since_us: int) -> None:
        """Nothing older than this may be under way."""
        if self._under_way is not None and self._under_way[1] < since_us:
            self.hear()

    @property
    def unread(self) -> tuple[int, int] | None:
        """As of a decoder; a run that is under way is not read."""
        return self._under_way or self._unread

    def home(self) -> DirectionDecoder:
        self.hear()
        self._helper.tell("home")
        decoder = DirectionDecoder.resume(self._helper.answer(), **self._decoder.settings)
        decoder.facts = self._decoder.facts
        self._helpers.give_back(self._helper)
        return decoder


def _earlier(place: tuple[int, int], other: tuple[int, int] | None) -> tuple[int, int]:
    return place if other is None else (min(place[0], other[0]), min(place[1], other[1]))


def serve(room_fd: int, room_bytes: int) -> None:
    """The helper's side: until nobody talks to it any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started us
    room = mmap.mmap(room_fd, room_bytes, prot=mmap.PROT_READ)
    keep_freed_memory()
    try:
        with rare_collections():
            _answer(room, sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:  # nobody listens any more
        os._exit(0)


def _answer(room: mmap.mmap, heard: IO[bytes], said: IO[bytes]) -> None:
    decoder: DirectionDecoder | None = None
    while True:
        try:
            word, values = pickle.load(heard)
        except EOFError:
            return
        if word == "begin":
            state, settings = values
            decoder = DirectionDecoder.resume(state, **settings)
            continue
        assert decoder is not None
        answer: Any
        if word == "run":
            direction, offset, data, *places = values
            data = room[:data] if isinstance(data, int) else data
            decoder.receive_run(Run(None, direction, offset, data, *places))  # type: ignore[arg-type]
            answer = decoder.take_facts(), decoder.unread
        else:
            answer = decoder.state()
        said.write(pickle.dumps(answer, 5))  # whole: the first part of it would fill the pipe, and the rest wait
        said.flush()
