"""The known RTMP clients and servers, and the traits by which they are recognised. To add a program, add an entry.

Programs copy from each other. A trait that many programs share is worth few points or none. A trait that a program
never has is worth negative points, so that a similar program without an entry is not taken for it. No entry relies on a
single text that a user can set, unless that text is the signature of the program.
"""

from __future__ import annotations

from typing import NamedTuple


class Trait(NamedTuple):
    """Points for a trait whose whole value matches the pattern; negative points count against the program."""

    name: str
    pattern: str
    points: int


class Version(NamedTuple):
    """A trait and a pattern whose first group is the version."""

    trait: str
    pattern: str


class Software(NamedTuple):
    name: str
    traits: tuple[Trait, ...]
    versions: tuple[Version, ...] = ()


class KnownSoftware(tuple[Software, ...]):
    """A list of programs, hashed by identity because results are cached by it."""

    __slots__ = ()
    __hash__ = object.__hash__


# FFmpeg releases by their version of libavformat.
FFMPEG_BY_LIBAVFORMAT = {
    "57.83": "3.4", "58.12": "4.0", "58.20": "4.1", "58.29": "4.2", "58.45": "4.3", "58.76": "4.4", "59.16": "5.0",
    "59.27": "5.1", "60.3": "6.0", "60.16": "6.1", "61.1": "7.0", "61.7": "7.1", "62.3": "8.0", "62.12": "8.1",
    "63.1": "9.0",
}  # fmt: skip

CLIENTS = KnownSoftware((
    Software(
        "ffmpeg",
        (
            Trait("packet_random", "f778551eceab8e1e", 3),  # its generator has a constant seed
            Trait("packet_random", "(?!f778551eceab8e1e).*", -4),
            Trait("packet_version", "09007c02", 1),
            Trait("packet_time", "0", 1),
            Trait("flashVer", r"FMLE/3\.0 \(compatible; Lavf.*\)", 4),
            Trait("encoder", r"Lavf.*", 1),  # weak: also sent by other programs that stream a file written by FFmpeg
            Trait("flashVer", "LNX 9,0,124,2", 1),
            Trait("audioCodecs", "4071", 1),
            Trait("play_start", "-2000", 1),
            Trait("buffer", "3000", 1),
            Trait("order", r"connect (window_ack_size )?createStream (_checkbw )?getStreamLength play.*", 1),
            Trait("order", r"connect set_chunk_size releaseStream FCPublish createStream.*", 1),
            Trait("publish_csid", "8", 1),
        ),
        (Version("flashVer", r"Lavf(\d+\.\d+)"), Version("encoder", r"Lavf(\d+\.\d+)")),
    ),
    Software(
        "rtmpdump",
        (
            Trait("flashVer", "LNX 10,0,32,18", 1),
            Trait("audioCodecs", "3191", 2),
            Trait("first_buffer", "300", 1),
            Trait("buffer", "36000000", 3),  # ten hours, its default
            Trait("packet_random", "67458b6bc6237b32", 1),  # rand() of the C library without a seed
            Trait("packet_version", "80000[0-9]02", 3),
            Trait("play_csid", "8", 1),
        ),
    ),
    Software(
        "librtmp",
        (
            Trait("packet_random", "67458b6bc6237b32", 2),
            Trait("audioCodecs", "3191", 2),
            Trait("first_buffer", "300", 2),
            Trait("play_csid", "8", 1),
            Trait("order", "connect releaseStream FCPublish createStream publish.*", 1),
            Trait("connect_fields", "app,type,(flashVer,)?tcUrl", 1),
        ),
    ),
    Software(
        "OBS",
        (
            Trait("order", "set_chunk_size connect releaseStream FCPublish createStream publish.*", 2),
            Trait("connect_fields", r"app,type,(supportsGoAway,)?flashVer,swfUrl,tcUrl.*", 1),
            Trait("flashVer", r"FMLE/3\.0 \(compatible; FMSc/1\.0\)", 1),  # many programs send it
            Trait("encoder", r"obs-output module \(libobs version .*", 4),
            Trait("encoder", r"(?!obs-output module ).*", -4),
        ),
        (Version("encoder", r"libobs version (\d+\.\d+\.\d+)"),),
    ),
    Software(
        "GStreamer",
        (
            Trait("encoder", "GStreamer .*", 6),
            Trait("flashVer", ".*Lavf.*", -6),  # FFmpeg that sends a file written by GStreamer
            Trait("release_id", "0", 2),
            Trait("flashVer", "LNX 10,0,32,18", 1),
            Trait("publish_csid", "3", 1),
            Trait("play_csid", "3", 1),
            Trait("publish_id", "0", 1),
            Trait("play_id", "0", 1),
            Trait("play_start", "-2", 1),
            Trait("audioCodecs", "4071", 1),
        ),
        (Version("encoder", r"GStreamer (\d[\d.]*)"),),
    ),
    Software(
        "nginx-rtmp",  # as a relay that pushes or pulls
        (
            Trait("packet_version", "0c000d0e", 3),
            Trait("flashVer", r"LNX\.11,1,102,55", 3),  # its default, with a full stop
            Trait("audioCodecs", "3575", 1),
            Trait("connect_fields", "app,tcUrl,pageUrl,swfUrl,flashVer,.*", 1),
        ),
    ),
    Software(
        "lal",  # seen: 0.37.4 pushing and pulling
        (
            Trait("packet_random", "6c616c6c616c6c61", 12),  # older versions: the random bytes spell its name
            Trait("handshake_text", r"random buf of rtmp handshake gen by lal .*", 12),
            Trait("flashVer", r"FMLE/3\.0 \(compatible; lal\d.*\)", 4),
            Trait("connect_fields", "app,type,flashVer,fpad,tcUrl", 1),
        ),
        (Version("handshake_text", r"lal v(\d[\d.]*)"), Version("flashVer", r"lal(\d[\d.]*)")),
    ),
    Software(
        "SRS",  # as an edge or forwarding; programs that copied its library lack the second object of connect
        (
            Trait("srs_server", "SRS/.*", 4),
            Trait("flashVer", "WIN 15,0,0,239", 1),
            Trait("capabilities", "239", 1),
            Trait("audioCodecs", "3575", 1),
        ),
        (Version("srs_server", r"SRS/(\d[\d.]*)"), Version("srs_version", r"(\d[\d.]*)")),
    ),
    Software(
        "MediaMTX",  # and other programs with gortmplib
        (
            Trait("order", "window_ack_size set_peer_bandwidth set_chunk_size connect.*", 3),
            Trait("connect_fields", "app,flashVer,tcUrl,(objectEncoding|fpad).*", 1),
            Trait("flashVer", "LNX 9,0,124,2", 1),
            Trait("chunk_size", "65536", 1),
            Trait("chunk_size", "(?!65536$).*", -4),
            Trait("handshake_text", ".*", -12),
        ),
    ),
    Software(
        "livego",
        (
            Trait("flashVer", r"FMS\.3\.1", 3),
            Trait("connect_fields", r"(?=.*\bapp\b)(?=.*\btype\b)(?=.*\bflashVer\b)(?=.*\btcUrl\b)\w+(,\w+){3}", 1),
            Trait("order", "connect createStream (publish|play).*", 1),
        ),
    ),
    Software(
        "go2rtc",
        (
            Trait("packet_random", "0000000000000000", 2),
            Trait("packet_random", "(?!0000000000000000).*", -4),
            Trait("connect_fields", r"(?=.*\bapp\b)(?=.*\bflashVer\b)(?=.*\btcUrl\b)\w+,\w+,\w+", 2),  # any order
            Trait("flashVer", r"(?!FMLE/3\.0 \(compatible; FMSc/1\.0\)).*", -4),
            Trait("order", "set_chunk_size connect (releaseStream FCPublish )?createStream p(lay|ublish).*", 1),
        ),
    ),
    Software(
        "rtmp-go",  # its relay
        (
            Trait(
                "connect_fields",
                "app,audioCodecs,capabilities,(enc\\w+,)?flashVer,(fourCcList,)?fpad,objectEncoding,swfUrl,tcUrl,type,"
                "videoCodecs,videoFunction.*",
                4,
            ),  # in alphabetical order
            Trait("audioCodecs", "0", 1),
            Trait("media_stream_id", "0", 1),
        ),
    ),
    Software(
        "Flash Player",
        (
            Trait("flashVer", r"(WIN|MAC) \d+,\d+,\d+,\d+", 2),
            Trait("flashVer", "WIN 15,0,0,239", -4),  # SRS as a client, and programs that copied it
            Trait("connect_fields", r"app,.*flashVer,swfUrl,.*pageUrl.*", 2),
        ),
        (Version("flashVer", r"(?:WIN|MAC) (\d+,\d+,\d+,\d+)"),),
    ),
    Software(
        "rtmp-relay client",
        (Trait("flashVer", r".*rtmp_relay/.*", 4), Trait("encoder", r"rtmp_relay.*", 3)),
        (Version("flashVer", r"rtmp_relay/(\d[\d.]*)"),),
    ),
    Software("XSplit", (Trait("encoder", "XSplit.*", 4),), (Version("encoder", r"XSplit\D*(\d[\d.]*)"),)),
    Software("Wirecast", (Trait("encoder", ".*Wirecast.*", 4),), (Version("encoder", r"Wirecast\D*(\d[\d.]*)"),)),
    Software("vMix", (Trait("encoder", "vMix.*", 4),), (Version("encoder", r"vMix\D*(\d[\d.]*)"),)),
    Software("Larix", (Trait("encoder", "Larix.*", 4),), (Version("encoder", r"Larix\D*(\d[\d.]*)"),)),
))  # fmt: skip

# Clients that end a publication by closing the connection, without FCUnpublish or deleteStream.
ENDS_WITH_FIN = {"nginx-rtmp"}

SERVERS = KnownSoftware((
    Software(
        "nginx-rtmp",
        (
            Trait("packet_version", "0d0e0a0d", 4),  # lal, livego and joy4 send it too, but differ in other traits
            Trait("handshake_text", ".*", -12),  # its random bytes are not a text
            Trait("packet_version", "01020304", -4),
            Trait("copies_c1", "yes", 1),
            Trait("order", "window_ack_size set_peer_bandwidth set_chunk_size _result.*", 1),
            Trait("order", "set_chunk_size.*", -4),
            Trait("status_csid", "5", 1),
            Trait("Publish.Start", "Start publishing", 1),
            Trait("Publish.Start", "(?!Start publishing$).*", -4),
            Trait("Play.Start", "Start (live|video on demand)", 1),
            Trait("Play.Start", "(?!Start (live|video on demand)$).*", -4),
            Trait("Play.StreamNotFound", "No such stream|Video on demand stream not found", 1),
            Trait("metadata_server", "NGINX RTMP.*", 4),
            Trait("metadata_server", "(?!NGINX RTMP).*", -12),
        ),
    ),
    Software(
        "lal",  # seen: 0.37.4
        (
            Trait("packet_random", "6c616c6c616c6c61", 12),
            Trait("handshake_text", r"random buf of rtmp handshake gen by lal .*", 12),
        ),
        (Version("handshake_text", r"lal v(\d[\d.]*)"),),
    ),
    Software(
        "livego",
        (
            Trait("Publish.Start", r"Start publish?ing\.", 3),  # older versions lack the h
            Trait("Play.PublishNotify", r"Started playing notify\.", 3),
            Trait("order", "window_ack_size set_peer_bandwidth set_chunk_size _result.*", 1),
            Trait("chunk_size", "1024", 1),
            Trait("handshake_text", ".*", -12),
        ),
    ),
    Software(
        "go2rtc",
        (
            Trait("result_fields", "fmsVer", 2),
            Trait("copies_c1", "yes", 1),
            Trait("order", "set_chunk_size _result.*", 2),
            Trait("Publish.Start", ".+", -4),  # its statuses have no description
            Trait("Play.Start", ".+", -4),
        ),
    ),
    Software(
        "rtmp-go",  # seen: 0.4.0
        (
            Trait("result_fields", "capabilities,fmsVer,(\\w+,)?mode", 3),  # in alphabetical order
            Trait("fmsVer", "FMS/3,0,1,123|FMS/3,5,7,7009", 1),
            Trait("Publish.Start", r"Publishing [^ ]+/\*\.", 2),
            Trait("Publish.Start", r"(?!Publishing ).*", -4),
            Trait("Play.Start", r"Started playing [^ ]+/\*\.", 2),
            Trait("Play.Start", r"(?!Started playing ).*", -4),
        ),
    ),
    Software(
        "Node-Media-Server",
        (
            Trait("packet_version", "01020304", 2),  # other programs copied its handshake
            Trait("copies_c1", "yes", 1),
            Trait("status_csid", "3", 1),
            Trait("Publish.Start", r"\* is now published\.", 2),
            Trait("Publish.Start", r"(?!\* is now published\.$).*", -4),
            Trait("Play.Start", r"Started playing stream\.", 1),
            Trait("Play.Start", r"(?!Started playing stream\.$).*", -4),
            Trait("video_csid", "5", 1),
            Trait("data_csid", "6", 1),
        ),
    ),
    Software(
        "SRS",
        (
            Trait("srs_server", "SRS/.*", 4),
            Trait("metadata_server", "SRS.*", 3),
            Trait("fmsVer", "FMS/3,5,3,888", 2),
            Trait("capabilities", "127", 1),
        ),
        (
            Version("srs_server", r"SRS/(\d[\d.]*)"),
            Version("srs_version", r"(\d[\d.]*)"),
            Version("metadata_server", r"SRS/(\d[\d.]*)"),
        ),
    ),
    Software(
        "ffmpeg",
        (
            Trait("order", "window_ack_size set_peer_bandwidth stream_begin set_chunk_size _result onBWDone.*", 2),
            Trait("Publish.Start", r"\* is now published", 2),
            Trait("Play.Start", "playing stream", 2),
        ),
    ),
    Software("pyrtmp", (Trait("fmsVer", "FMS/3,0,123", 2), Trait("connect_words", "Connection succeeds", 2))),
    Software("MediaMTX", (Trait("fmsVer", "LNX 9,0,124,2", 4),)),  # and other programs with gortmplib
    Software("Red5", (Trait("fmsVer", "(?i)red5/.*", 4),), (Version("fmsVer", r"(?i)red5/(\d[\d,.]*)"),)),
    Software("Wowza", (Trait("fmsVer", ".*[Ww]owza.*", 4),)),  # many others send its FMS/3,5,7,7009
    Software("rtmpsrv", (Trait("packet_version", "03050101", 4),)),
    Software(
        "rtmp-relay",
        (Trait("fmsVer", "(?i).*rtmp[_-](relay|spark).*", 4),),
        (Version("fmsVer", r"(?i)rtmp[_-](?:relay|spark)[/ ](\d[\d.]*)"),),
    ),
))  # fmt: skip
