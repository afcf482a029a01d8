"""Every codec of audio and video messages: legacy codec ids, FourCCs, and what the analyzer does with each.

- To add a FourCC, add a row to `FOURCCS`.
- To add a codec, add its family to `FAMILIES` too if it has a configuration record or NAL units.

A *family* is the codec under one name, however the message names it: `avc` is codec id 7 and FourCC avc1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..errors import Severity
from . import audio, nal, video
from .record import AudioConfig, VideoConfig

# Legacy codec ids (FLV 10.1 E.4.2.1, E.4.3.1; 12 is HEVC as Chinese CDNs send it): the id is the index.
AUDIO_FORMATS = (
    "pcm", "adpcm", "mp3", "pcm_le", "nellymoser_16k", "nellymoser_8k", "nellymoser", "g711a", "g711u", "unknown_9",
    "aac", "speex", "unknown_12", "unknown_13", "mp3_8k", "device",
)  # fmt: skip
VIDEO_CODECS = (
    "unknown_0", "jpeg", "h263", "screen", "vp6", "vp6a", "screen2", "avc", "unknown_8", "unknown_9", "unknown_10",
    "unknown_11", "hevc", "unknown_13", "unknown_14", "unknown_15",
)  # fmt: skip


class FourCc(NamedTuple):
    kind: str  # audio or video
    family: str
    composition_time: bool = False  # coded frames (packet type 1) begin with a 24-bit composition time


# Every FourCC of E-RTMP v2 ("Enhanced Audio", "Enhanced Video").
FOURCCS = {
    "ac-3": FourCc("audio", "ac3"),
    "ec-3": FourCc("audio", "eac3"),
    "Opus": FourCc("audio", "opus"),
    ".mp3": FourCc("audio", "mp3"),
    "fLaC": FourCc("audio", "flac"),
    "mp4a": FourCc("audio", "aac"),
    "vp08": FourCc("video", "vp8"),
    "vp09": FourCc("video", "vp9"),
    "av01": FourCc("video", "av1"),
    "avc1": FourCc("video", "avc", composition_time=True),
    "hvc1": FourCc("video", "hevc", composition_time=True),
    "vvc1": FourCc("video", "vvc", composition_time=True),
}


class Family(NamedTuple):
    config: Callable[[bytes], VideoConfig | AudioConfig] | None = None  # parser of the configuration record
    config_missing: Severity | None = None  # severity of a frame before its configuration; None: it needs none
    nal_units: bool = False


FAMILIES = {
    "avc": Family(nal.parse_avc_config, Severity.ERROR, nal_units=True),
    "hevc": Family(nal.parse_hevc_config, Severity.ERROR, nal_units=True),
    "vvc": Family(nal.parse_vvc_config, Severity.ERROR, nal_units=True),
    "av1": Family(video.parse_av1_config, Severity.WARNING),
    "vp9": Family(video.parse_vp9_config, Severity.WARNING),
    "aac": Family(audio.parse_aac_config, Severity.ERROR),
    "opus": Family(audio.parse_opus_config),
    "flac": Family(audio.parse_flac_config, Severity.ERROR),
}

AUDIO_FOURCC = tuple(code for code, row in FOURCCS.items() if row.kind == "audio")
VIDEO_FOURCC = tuple(code for code, row in FOURCCS.items() if row.kind == "video")
# Codec names of tags -> family, where the two differ.
FAMILY_OF = {**{code: row.family for code, row in FOURCCS.items()}, "mp3_8k": "mp3"}
WITH_COMPOSITION_TIME = frozenset(code for code, row in FOURCCS.items() if row.composition_time)
NAL_FAMILIES = frozenset(name for name, family in FAMILIES.items() if family.nal_units)
CONFIG_PARSERS = {name: family.config for name, family in FAMILIES.items() if family.config is not None}
CONFIG_NEEDED = {name: family.config_missing for name, family in FAMILIES.items() if family.config_missing is not None}
