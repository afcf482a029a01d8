"""Synthetic media: valid H.264 and AAC, written bit by bit without an encoder.

The video is grey (Intra_16x16 DC without residual, then skipped macroblocks), the audio is silence. User-data SEI and
AAC data stream elements fill each frame to the wanted size and make every body unique, so that tests can identify
frames.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from rtmp_spark.codec import amf0
from rtmp_spark.codec.amf import EcmaArray, Text, Value
from rtmp_spark.codec.message import AUDIO, DATA_AMF0, VIDEO

from .frames import Tag

AAC_FRAME_SAMPLES = 1024
_SEI_UUID = hashlib.md5(b"rtmp_relay synthetic", usedforsecurity=False).digest()


class _Bits:
    """Writes bit fields; every method returns the writer."""

    def __init__(self) -> None:
        self._text: list[str] = []

    def u(self, width: int, value: int) -> _Bits:
        self._text.append(format(value, f"0{width}b"))
        return self

    def ue(self, value: int) -> _Bits:
        """Unsigned Exp-Golomb code (H.264 9.1)."""
        code = format(value + 1, "b")
        self._text.append("0" * (len(code) - 1) + code)
        return self

    def se(self, value: int) -> _Bits:
        """Signed Exp-Golomb code (H.264 9.1.1)."""
        return self.ue(2 * value - 1 if value > 0 else -2 * value)

    def repeat(self, bits: str, times: int) -> _Bits:
        self._text.append(bits * times)
        return self

    def trailing(self) -> bytes:
        """Write rbsp_trailing_bits (a one, then zeros up to a byte) and return the bytes."""
        self._text.append("1")
        return self.aligned()

    def aligned(self) -> bytes:
        """Pad with zeros to a whole byte and return the bytes."""
        text = "".join(self._text)
        text += "0" * (-len(text) % 8)
        return int(text, 2).to_bytes(len(text) // 8, "big")


def _nal(header: int, rbsp: bytes) -> bytes:
    """Return a NAL unit with emulation prevention bytes (H.264 7.4.1.1)."""
    out = bytearray((header,))
    zeros = 0
    for byte in rbsp:
        if zeros >= 2 and byte <= 3:
            out.append(3)
            zeros = 0
        out.append(byte)
        zeros = zeros + 1 if byte == 0 else 0
    return bytes(out)


def unique_bytes(label: bytes, size: int) -> bytes:
    """Return bytes that differ for every label and never look like a start code."""
    block = bytes(b | 0x80 for b in hashlib.sha256(label).digest())
    return (block * (size // len(block) + 1))[:size]


@dataclass(frozen=True)
class Synthetic:
    """A description of the media to make. `first_timestamp` (ms) is added to every timestamp."""

    seconds: float = 5.0
    width: int = 320
    height: int = 240
    fps: int = 25
    gop: int = 25
    video_bitrate: int = 400_000
    audio_bitrate: int = 64_000
    sample_rate: int = 44_100
    video: bool = True
    audio: bool = True
    enhanced: bool = False  # avc1 and mp4a with E-RTMP headers instead of legacy ones
    audio_tracks: int = 1  # more than one: E-RTMP multitrack
    first_timestamp: int = 0

    # -- configuration records -------------------------------------------------------------------------------

    def sps(self) -> bytes:
        across, down = -(-self.width // 16), -(-self.height // 16)
        bits = _Bits().u(8, 66).u(8, 0xC0).u(8, 30)  # constrained baseline, level 3.0
        bits.ue(0).ue(0).ue(2).ue(1).u(1, 0)  # sps 0; frame_num 4 bits; output order = decoding order; 1 reference
        bits.ue(across - 1).ue(down - 1).u(1, 1).u(1, 1)
        right, bottom = (across * 16 - self.width) // 2, (down * 16 - self.height) // 2
        bits.u(1, int(bool(right or bottom)))
        if right or bottom:
            bits.ue(0).ue(right).ue(0).ue(bottom)
        bits.u(1, 1).u(1, 0).u(1, 0).u(1, 0).u(1, 0)  # VUI, of which only the timing is present
        bits.u(1, 1).u(32, 1).u(32, 2 * self.fps).u(1, 1)
        bits.u(1, 0).u(1, 0).u(1, 0).u(1, 0)
        return _nal(0x67, bits.trailing())

    def pps(self) -> bytes:
        bits = _Bits().ue(0).ue(0).u(1, 0).u(1, 0).ue(0).ue(0).ue(0).u(1, 0).u(2, 0)
        bits.se(0).se(0).se(0).u(1, 1).u(1, 0).u(1, 0)  # deblocking control present
        return _nal(0x68, bits.trailing())

    def avc_config(self) -> bytes:
        sps, pps = self.sps(), self.pps()
        head = bytes((1, sps[1], sps[2], sps[3], 0xFF, 0xE1))
        return head + struct.pack(">H", len(sps)) + sps + b"\x01" + struct.pack(">H", len(pps)) + pps

    def audio_config(self) -> bytes:
        rates = (96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350)
        return _Bits().u(5, 2).u(4, rates.index(self.sample_rate)).u(4, 1).u(3, 0).aligned()  # AAC-LC, mono

    # -- coded frames ----------------------------------------------------------------------------------------

    def _slice(self, index_in_gop: int, idr_id: int) -> bytes:
        macroblocks = -(-self.width // 16) * -(-self.height // 16)
        key = index_in_gop == 0
        bits = _Bits().ue(0).ue(7 if key else 5).ue(0).u(4, index_in_gop & 15)
        if key:
            bits.ue(idr_id & 1).u(1, 0).u(1, 0)  # idr_pic_id; dec_ref_pic_marking
        else:
            bits.u(1, 0).u(1, 0).u(1, 0)  # default references, no reordering; sliding window
        bits.se(0).ue(1)  # slice_qp_delta; no deblocking
        if key:
            # Intra_16x16 DC without coefficients: mb_type 3, chroma DC, qp delta 0, coeff_token of no coefficients
            bits.repeat("00100" + "1" + "1" + "1", macroblocks)
        else:
            bits.ue(macroblocks)  # mb_skip_run over the whole frame
        return _nal(0x65 if key else 0x41, bits.trailing())

    def video_frame(self, number: int) -> bytes:
        """Return the length-prefixed NAL units of frame `number`."""
        share = self.video_bitrate / 8 / self.fps
        # A keyframe is four times as large as the others, as with common encoders.
        unit = share * self.gop / (self.gop + 3)
        in_gop = number % self.gop
        size = max(24, int(unit * (4 if in_gop == 0 else 1)))
        body = _SEI_UUID + unique_bytes(b"v%d" % number, size)
        length = bytes((255,)) * (len(body) // 255) + bytes((len(body) % 255,))
        units = (_nal(0x06, b"\x05" + length + body + b"\x80"), self._slice(in_gop, number // self.gop))
        return b"".join(struct.pack(">I", len(unit)) + unit for unit in units)

    def audio_frame(self, number: int, track: int = 0) -> bytes:
        """Return a raw_data_block: a silent single channel element, then a data stream element of the wanted size."""
        size = int(self.audio_bitrate / 8 * AAC_FRAME_SAMPLES / self.sample_rate) - 8
        size = max(8, min(size, 509))
        bits = _Bits().u(3, 0).u(4, 0).u(8, 0).u(1, 0).u(2, 0).u(1, 0).u(6, 0).u(1, 0).u(1, 0).u(1, 0).u(1, 0)
        bits.u(3, 4).u(4, 0).u(1, 0)  # data stream element, not aligned
        bits.u(8, min(size, 255))
        if size >= 255:
            bits.u(8, size - 255)
        for byte in unique_bytes(b"a%d.%d" % (track, number), size):
            bits.u(8, byte)
        return bits.u(3, 7).aligned()

    # -- tags ------------------------------------------------------------------------------------------------

    def metadata(self) -> Tag:
        values: dict[Text, Value] = {"duration": 0.0, "encoder": "rtmp_relay synthetic"}
        if self.video:
            values |= {
                "width": float(self.width),
                "height": float(self.height),
                "framerate": float(self.fps),
                "videodatarate": self.video_bitrate / 1000,
                "videocodecid": float(int.from_bytes(b"avc1", "big")) if self.enhanced else 7.0,
            }
        if self.audio:
            values |= {
                "audiodatarate": self.audio_bitrate / 1000,
                "audiosamplerate": float(self.sample_rate),
                "audiosamplesize": 16.0,
                "stereo": False,
                "audiocodecid": float(int.from_bytes(b"mp4a", "big")) if self._enhanced_audio else 10.0,
            }
        return Tag(DATA_AMF0, self.first_timestamp, amf0.dump_values(["onMetaData", EcmaArray(list(values.items()))]))

    @property
    def _enhanced_audio(self) -> bool:
        return self.enhanced or self.audio_tracks > 1

    def _video_tag(self, packet_type: int, key: bool, body: bytes) -> bytes:
        frame_type = 1 if key else 2
        if self.enhanced:
            composition = b"\0\0\0" if packet_type == 1 else b""
            return bytes((0x80 | frame_type << 4 | packet_type,)) + b"avc1" + composition + body
        return bytes((frame_type << 4 | 7, packet_type, 0, 0, 0)) + body

    def _audio_tag(self, packet_type: int, bodies: list[bytes]) -> bytes:
        if len(bodies) > 1:
            tracks = b"".join(bytes((n,)) + len(b).to_bytes(3, "big") + b for n, b in enumerate(bodies))
            return bytes((0x95, 0x10 | packet_type)) + b"mp4a" + tracks
        if self.enhanced:
            return bytes((0x90 | packet_type,)) + b"mp4a" + bodies[0]
        return bytes((0xAF, packet_type)) + bodies[0]

    def tags(self) -> Iterator[Tag]:
        """Yield metadata, configurations, then frames in the order of their timestamps."""
        yield self.metadata()
        start = self.first_timestamp
        if self.video:
            yield Tag(VIDEO, start, self._video_tag(0, True, self.avc_config()))
        if self.audio:
            yield Tag(AUDIO, start, self._audio_tag(0, [self.audio_config()] * self.audio_tracks))
        video_frames = round(self.seconds * self.fps) if self.video else 0
        audio_frames = round(self.seconds * self.sample_rate / AAC_FRAME_SAMPLES) if self.audio else 0
        video = audio = 0
        while video < video_frames or audio < audio_frames:
            video_at = start + round(video * 1000 / self.fps)
            audio_at = start + round(audio * 1000 * AAC_FRAME_SAMPLES / self.sample_rate)
            if video < video_frames and (audio >= audio_frames or video_at <= audio_at):
                yield Tag(VIDEO, video_at, self._video_tag(1, video % self.gop == 0, self.video_frame(video)))
                video += 1
            else:
                bodies = [self.audio_frame(audio, track) for track in range(self.audio_tracks)]
                yield Tag(AUDIO, audio_at, self._audio_tag(1, bodies))
                audio += 1
