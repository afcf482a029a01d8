"""Exit codes of the commands. 0 means that the command did what was asked."""

from __future__ import annotations

import signal

FINDINGS = 1  # `check`: findings at or above --fail-on, or failed vectors; `probe`: a MUST that fails
USAGE = 2  # wrong arguments; also a path, uid or stream that does not exist
ENVIRONMENT = 3  # a package, Java, the network or disk space is missing
FILE_FAILED = 4  # a capture file could not be read
NO_RTMP = 5  # the input holds no RTMP connection
INTERRUPTED = 128 + signal.SIGINT
PIPE_CLOSED = 128 + signal.SIGPIPE
