"""Where the relay records streams: one FLV file per publication, inside one directory."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from rtmp_relay.flv_recorder import Recorder

from .log_names import key_for_log
from .stream_names import BadName

log = logging.getLogger(__name__)


def record_path(root: Path, key: str, suffix: str) -> Path:
    """Return `root/app/name<suffix>` with each part quoted. Raises BadName if that is outside the root."""
    parts = [quote(part, safe=" @+=,") for part in key.split("/")]
    parts[-1] = parts[-1][:200] + suffix
    path = root.joinpath(*parts)
    if not path.resolve().is_relative_to(root.resolve()):
        raise BadName("the recording would be outside its directory")
    return path


def recorder_factory(root: Path) -> Callable[[str], Recorder | None]:
    """Return a function that opens `root/app/name-TIME-N.flv`, or logs the reason and returns None if it cannot."""
    counter = itertools.count()

    def open_recorder(key: str) -> Recorder | None:
        suffix = time.strftime("-%Y%m%dT%H%M%SZ", time.gmtime()) + f"-{next(counter)}.flv"
        try:
            return Recorder(record_path(root, key, suffix), path_for_log=record_path(root, key_for_log(key), suffix))
        except (OSError, BadName) as error:
            # The text of an OSError contains the path, and so the stream name.
            reason = error.strerror if isinstance(error, OSError) else error
            log.error("cannot record %s: %s", key_for_log(key), reason)
            return None

    return open_recorder
