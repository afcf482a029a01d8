"""Which software this is: habits compared with the ones on file, each worth so many points.

Enough points name it, and the habits that gave them are the evidence; what is not on file stays unknown. Programs copy
from each other: what many have in common is worth little or nothing, and a habit that the program never has takes
points away, so that a relative which is not on file is not taken for the one that is. No rule rests on one text that a
user may set unless that text is the program's own signature, and a program that is recognised by its habits alone has a
name without a version. The file is data: a new program is a new entry.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from rtmp_spark.forensics.habits import Habits

NEEDED = 4


class Software(NamedTuple):
    name: str
    habits: tuple[tuple[str, str, int], ...]  # habit, pattern of its whole value, points; below 0 it is another one
    versions: tuple[tuple[str, str], ...] = ()  # habit, pattern whose first group is the version


class Known(tuple[Software, ...]):
    """Programs on file, hashed as the one object they are, because verdicts are looked up by them."""

    __slots__ = ()
    __hash__ = object.__hash__


class Verdict(NamedTuple):
    software: str | None  # name/version, or name
    evidence: tuple[str, ...]


# FFmpeg releases by the version of libavformat that came with them.
_LAVF = {
    "57.83": "3.4", "58.12": "4.0", "58.20": "4.1", "58.29": "4.2", "58.45": "4.3", "58.76": "4.4", "59.16": "5.0",
    "59.27": "5.1", "60.3": "6.0", "60.16": "6.1", "61.1": "7.0", "61.7": "7.1", "62.3": "8.0", "62.12": "8.1",
}  # fmt: skip

CLIENTS = Known((
    Software(
        "ffmpeg",
        (
            ("packet_random", "f778551eceab8e1e", 3),  # its generator starts from a constant
            ("packet_random", "(?!f778551eceab8e1e).*", -4),
            ("packet_version", "09007c02", 1),
            ("packet_time", "0", 1),
            ("flashVer", r"FMLE/3\.0 \(compatible; Lavf.*\)", 4),
            ("encoder", r"Lavf.*", 1),  # whoever sends a file that it wrote says this too
            ("flashVer", "LNX 9,0,124,2", 1),
            ("audioCodecs", "4071", 1),
            ("play_start", "-2000", 1),
            ("buffer", "3000", 1),
            ("order", r"connect (window_ack_size )?createStream (_checkbw )?getStreamLength play.*", 1),
            ("order", r"connect set_chunk_size releaseStream FCPublish createStream.*", 1),
            ("publish_csid", "8", 1),
        ),
        (("flashVer", r"Lavf(\d+\.\d+)"), ("encoder", r"Lavf(\d+\.\d+)")),
    ),
    Software(
        "rtmpdump",
        (
            ("flashVer", "LNX 10,0,32,18", 1),
            ("audioCodecs", "3191", 2),
            ("first_buffer", "300", 1),
            ("buffer", "36000000", 3),  # ten hours, its default
            ("packet_random", "67458b6bc6237b32", 1),  # rand() of the C library, never seeded
            ("packet_version", "80000[0-9]02", 3),
            ("play_csid", "8", 1),
        ),
    ),
    Software(
        "librtmp",
        (
            ("packet_random", "67458b6bc6237b32", 2),
            ("audioCodecs", "3191", 2),
            ("first_buffer", "300", 2),
            ("play_csid", "8", 1),
            ("order", "connect releaseStream FCPublish createStream publish.*", 1),
            ("connect_fields", "app,type,(flashVer,)?tcUrl", 1),
        ),
    ),
    Software(
        "OBS",
        (
            ("order", "set_chunk_size connect releaseStream FCPublish createStream publish.*", 2),
            ("connect_fields", r"app,type,(supportsGoAway,)?flashVer,swfUrl,tcUrl.*", 1),
            ("flashVer", r"FMLE/3\.0 \(compatible; FMSc/1\.0\)", 1),  # of many, after Adobe's own encoder
            ("encoder", r"obs-output module \(libobs version .*", 4),
            ("encoder", r"(?!obs-output module ).*", -4),
        ),
        (("encoder", r"libobs version (\d+\.\d+\.\d+)"),),
    ),
    Software(
        "GStreamer",
        (
            ("encoder", "GStreamer .*", 6),
            ("flashVer", ".*Lavf.*", -6),  # sends what GStreamer wrote
            ("release_id", "0", 2),
            ("flashVer", "LNX 10,0,32,18", 1),
            ("publish_csid", "3", 1),
            ("play_csid", "3", 1),
            ("publish_id", "0", 1),
            ("play_id", "0", 1),
            ("play_start", "-2", 1),
            ("audioCodecs", "4071", 1),
        ),
        (("encoder", r"GStreamer (\d[\d.]*)"),),
    ),
    Software(
        "nginx-rtmp",  # a relay that pushes or pulls
        (
            ("packet_version", "0c000d0e", 3),
            ("flashVer", r"LNX\.11,1,102,55", 3),  # its default, with a full stop
            ("audioCodecs", "3575", 1),
            ("connect_fields", "app,tcUrl,pageUrl,swfUrl,flashVer,.*", 1),
        ),
    ),
    Software("lal", (("packet_random", "6c616c6c616c6c61", 12),)),  # its random bytes are its name
    Software(
        "Flash Player",
        (
            ("flashVer", r"(WIN|MAC) \d+,\d+,\d+,\d+", 2),
            ("flashVer", "WIN 15,0,0,239", -4),  # what SRS says as a client, and who learned from it
            ("connect_fields", r"app,.*flashVer,swfUrl,.*pageUrl.*", 2),
        ),
        (("flashVer", r"(?:WIN|MAC) (\d+,\d+,\d+,\d+)"),),
    ),
    Software(
        "rtmp-relay client",
        (("flashVer", r".*rtmp_relay/.*", 4), ("encoder", r"rtmp_relay.*", 3)),
        (("flashVer", r"rtmp_relay/(\d[\d.]*)"),),
    ),
    Software("XSplit", (("encoder", "XSplit.*", 4),), (("encoder", r"XSplit\D*(\d[\d.]*)"),)),
    Software("Wirecast", (("encoder", ".*Wirecast.*", 4),), (("encoder", r"Wirecast\D*(\d[\d.]*)"),)),
    Software("vMix", (("encoder", "vMix.*", 4),), (("encoder", r"vMix\D*(\d[\d.]*)"),)),
    Software("Larix", (("encoder", "Larix.*", 4),), (("encoder", r"Larix\D*(\d[\d.]*)"),)),
))  # fmt: skip

SERVERS = Known((
    Software(
        "nginx-rtmp",
        (
            ("packet_version", "0d0e0a0d", 4),  # livego and joy4 send it too, and differ in what follows
            ("packet_version", "01020304", -4),
            ("copies_c1", "yes", 1),
            ("order", "window_ack_size set_peer_bandwidth set_chunk_size _result.*", 1),
            ("order", "set_chunk_size.*", -4),
            ("status_csid", "5", 1),
            ("Publish.Start", "Start publishing", 1),
            ("Publish.Start", "(?!Start publishing$).*", -4),
            ("Play.Start", "Start (live|video on demand)", 1),
            ("Play.Start", "(?!Start (live|video on demand)$).*", -4),
            ("Play.StreamNotFound", "No such stream|Video on demand stream not found", 1),
            ("metadata_server", "NGINX RTMP.*", 4),
            ("metadata_server", "(?!NGINX RTMP).*", -12),
        ),
    ),
    Software("lal", (("packet_random", "6c616c6c616c6c61", 12),)),
    Software(
        "Node-Media-Server",
        (
            ("packet_version", "01020304", 2),  # of its handshake, which others took over
            ("copies_c1", "yes", 1),
            ("status_csid", "3", 1),
            ("Publish.Start", r"\* is now published\.", 2),
            ("Publish.Start", r"(?!\* is now published\.$).*", -4),
            ("Play.Start", r"Started playing stream\.", 1),
            ("Play.Start", r"(?!Started playing stream\.$).*", -4),
            ("video_csid", "5", 1),
            ("data_csid", "6", 1),
        ),
    ),
    Software(
        "SRS",
        (
            ("srs_server", "SRS/.*", 4),
            ("metadata_server", "SRS.*", 3),
            ("fmsVer", "FMS/3,5,3,888", 2),
            ("capabilities", "127", 1),
        ),
        (("srs_server", r"SRS/(\d[\d.]*)"), ("srs_version", r"(\d[\d.]*)"), ("metadata_server", r"SRS/(\d[\d.]*)")),
    ),
    Software(
        "ffmpeg",
        (
            ("order", "window_ack_size set_peer_bandwidth stream_begin set_chunk_size _result onBWDone.*", 2),
            ("Publish.Start", r"\* is now published", 2),
            ("Play.Start", "playing stream", 2),
        ),
    ),
    Software("pyrtmp", (("fmsVer", "FMS/3,0,123", 2), ("connect_words", "Connection succeeds", 2))),
    Software("MediaMTX", (("fmsVer", "LNX 9,0,124,2", 4),)),
    Software("Red5", (("fmsVer", "(?i)red5/.*", 4),), (("fmsVer", r"(?i)red5/(\d[\d,.]*)"),)),
    Software("Wowza", (("fmsVer", ".*[Ww]owza.*", 4),)),  # its FMS/3,5,7,7009 is what many others say
    Software("rtmpsrv", (("packet_version", "03050101", 4),)),
    Software(
        "rtmp-relay",
        (("fmsVer", "(?i).*rtmp[_-](relay|spark).*", 4),),
        (("fmsVer", r"(?i)rtmp[_-](?:relay|spark)[/ ](\d[\d.]*)"),),
    ),
))  # fmt: skip

_WORDS = {
    "packet_random": "first random bytes of the handshake",
    "packet_version": "version field of the handshake",
    "packet_time": "time field of the handshake",
    "copies_c1": "S1 is a copy of C1",
    "connect_fields": "fields of connect",
    "order": "first messages",
    "release_id": "transaction id of releaseStream",
    "first_buffer": "first buffer length",
    "buffer": "buffer length",
    "fmsVer": "fmsVer",
    "status_csid": "csid of onStatus",
    "media_stream_id": "message stream id of media",
    "metadata_server": "server named in onMetaData",
}


def recognise(habits: Habits, known: Known) -> Verdict:
    """The best of the known ones that has enough points; nothing when two are equally good."""
    telling = _telling(known)
    return _recognised(known, tuple([(habit, text) for habit, text in habits.items() if habit in telling]))


@lru_cache
def _telling(known: Known) -> frozenset[str]:
    """The habits that any of them is recognised or named by."""
    return frozenset(
        [habit for software in known for habit, _, _ in software.habits]
        + [habit for software in known for habit, _ in software.versions]
    )


@lru_cache(4096)  # the same few programs connect again and again
def _recognised(known: Known, told: tuple[tuple[str, str], ...]) -> Verdict:
    habits = dict(told)
    scored = []
    for software in known:
        fitting = [
            (habit, points)
            for habit, pattern, points in software.habits
            if habit in habits and re.fullmatch(pattern, habits[habit], re.DOTALL)
        ]
        scored.append((sum(points for _, points in fitting), software, [fit for fit in fitting if fit[1] > 0]))
    best = max(score for score, _, _ in scored)
    winners = [(software, fitting) for score, software, fitting in scored if score == best]
    if best < NEEDED or len(winners) > 1:
        return Verdict(None, ())
    software, fitting = winners[0]
    evidence = tuple(
        dict.fromkeys(
            f"{_WORDS.get(habit, habit)}: {habits[habit]}" for habit, _ in sorted(fitting, key=lambda f: -f[1])
        )
    )
    return Verdict(_named(software, habits), evidence)


def _named(software: Software, habits: Habits) -> str:
    for habit, pattern in software.versions:
        found = re.search(pattern, habits.get(habit, ""))
        if found:
            version = found.group(1)
            if software.name == "ffmpeg":
                version = _LAVF.get(version, f"Lavf{version}")
            return f"{software.name}/{version.replace(',', '.')}"
    return software.name
