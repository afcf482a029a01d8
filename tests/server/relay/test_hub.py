"""Streams, players, header and GOP caches, without sockets."""

from __future__ import annotations

import pytest

from rtmp_relay.frames import Frame, Tag, frames_of
from rtmp_relay.relay.hub import Hub, HubOptions, NameTaken, TooManyPlayers
from rtmp_relay.relay.live_stream import LiveStream
from rtmp_relay.relay.player import Player
from rtmp_relay.relay.send_queue import SendQueue
from rtmp_relay.synthetic_media import Synthetic
from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.events import MessageReceived
from rtmp_spark.codec.message import AGGREGATE, AUDIO, DATA_AMF0, DATA_AMF3, VIDEO, dump_aggregate

CHUNK_SIZE = 4096


class Listener:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def stream_started(self, player: Player) -> None:
        self.calls.append("started")

    def stream_ended(self, player: Player) -> None:
        self.calls.append("ended")

    def stream_missing(self, player: Player) -> None:
        self.calls.append("missing")


def new_player(queue: SendQueue | None = None, stream_id: int = 1) -> Player:
    return Player(Listener(), SendQueue() if queue is None else queue, stream_id, CHUNK_SIZE)


def join(hub: Hub, player: Player, now: float = 0.0) -> LiveStream:
    stream = hub.play("live/cam", player, now)
    stream.send_headers(player)
    return stream


def received(player: Player) -> list[Tag]:
    """Return the tags that a decoder finds in everything queued for the player."""
    wire = b""
    while data := player.queue.take(1 << 20):
        wire += data
    decoder = RtmpDecoder(phase="chunks", chunk_size=CHUNK_SIZE)
    events = decoder.receive_data(wire)
    assert all(isinstance(event, MessageReceived) for event in events)
    return [Tag(e.type_id, e.timestamp, e.payload) for e in events if isinstance(e, MessageReceived)]


def feed(stream: LiveStream, tags: list[Tag]) -> None:
    for tag in tags:
        for frame in frames_of(*tag):
            stream.feed(frame)


MEDIA = Synthetic(seconds=3.0, gop=25)
TAGS = list(MEDIA.tags())
HEADERS = 3  # metadata, video configuration, audio configuration


def kinds(tags: list[Tag]) -> list[tuple[int, int]]:
    return [(tag.type_id, tag.timestamp) for tag in tags]


def test_a_player_from_the_start_gets_every_tag_unchanged() -> None:
    hub, player = Hub(), new_player()
    join(hub, player)
    stream = hub.publish("live/cam", "publisher", 0.0)
    feed(stream, TAGS)
    assert received(player) == TAGS


def test_a_late_joiner_gets_headers_then_starts_at_the_next_keyframe() -> None:
    hub, player = Hub(), new_player()
    stream = hub.publish("live/cam", "publisher", 0.0)
    half = next(i for i, tag in enumerate(TAGS) if tag.timestamp > 1200)
    feed(stream, TAGS[:half])
    join(hub, player)
    feed(stream, TAGS[half:])
    got = received(player)
    assert got[:HEADERS] == TAGS[:HEADERS]
    first_key = next(i for i, tag in enumerate(TAGS) if tag.type_id == VIDEO and tag.timestamp == 2000)
    assert got[HEADERS:] == TAGS[first_key:]


def test_with_a_gop_cache_a_late_joiner_starts_at_the_last_keyframe() -> None:
    hub, player = Hub(HubOptions(gop_cache=True)), new_player()
    stream = hub.publish("live/cam", "publisher", 0.0)
    half = next(i for i, tag in enumerate(TAGS) if tag.timestamp > 1200)
    feed(stream, TAGS[:half])
    join(hub, player)
    feed(stream, TAGS[half:])
    got = received(player)
    last_key = next(i for i, tag in enumerate(TAGS) if tag.type_id == VIDEO and tag.timestamp == 1000)
    assert got == TAGS[:HEADERS] + TAGS[last_key:]


def test_a_gop_cache_is_bounded() -> None:
    hub = Hub(HubOptions(gop_cache=True, cache_messages=10))
    stream = hub.publish("live/cam", "publisher", 0.0)
    feed(stream, TAGS)
    assert stream.gop_cache is not None
    assert len(stream.gop_cache.frames) <= 10


def test_an_audio_only_stream_starts_without_waiting_for_a_keyframe() -> None:
    hub, player = Hub(), new_player()
    tags = list(Synthetic(seconds=1.0, video=False).tags())
    stream = hub.publish("live/cam", "publisher", 0.0)
    feed(stream, tags[:10])
    join(hub, player)
    feed(stream, tags[10:])
    assert received(player) == tags[:2] + tags[10:]


@pytest.mark.parametrize("audio_tracks", [1, 2])
def test_enhanced_configurations_are_cached_per_track(audio_tracks: int) -> None:
    tags = list(Synthetic(seconds=1.0, enhanced=True, audio_tracks=audio_tracks).tags())
    hub, player = Hub(), new_player()
    stream = hub.publish("live/cam", "publisher", 0.0)
    feed(stream, tags)
    join(hub, player)
    assert received(player) == tags[:HEADERS]


def test_one_track_messages_cache_one_configuration_per_track() -> None:
    """E-RTMP multitrack type OneTrack: three messages configure three tracks; the last one of each track counts."""
    hub, player = Hub(), new_player()
    stream = hub.publish("live/cam", "publisher", 0.0)

    def config(track: int, version: int) -> Tag:
        return Tag(AUDIO, 0, bytes((0x95, 0x00)) + b"mp4a" + bytes((track, 0x12, version)))

    feed(stream, [config(0, 1), config(1, 1), config(2, 1), config(1, 2)])
    join(hub, player)
    assert received(player) == [config(0, 1), config(1, 2), config(2, 1)]


def test_invented_tracks_do_not_fill_the_memory() -> None:
    hub = Hub()
    stream = hub.publish("live/cam", "publisher", 0.0)
    for number in range(1000):
        tracks = bytes((number & 0xFF, 0, 0, 1, 7)) + bytes((number >> 8, 0, 0, 1, 7))
        feed(stream, [Tag(AUDIO, 0, bytes((0x95, 0x10)) + b"mp4a" + tracks)])
    feed(stream, [Tag(VIDEO, 0, b"\x17\0\0\0\0" + bytes(1 << 20))])
    assert len(stream.headers) <= 128
    assert sum(len(frame.payload) for frame in stream.headers.values()) < 1 << 20


def test_a_new_configuration_replaces_the_cached_one() -> None:
    hub, player = Hub(), new_player()
    stream = hub.publish("live/cam", "publisher", 0.0)
    other = Tag(VIDEO, 500, b"\x17\0\0\0\0" + Synthetic(fps=50).avc_config())
    feed(stream, [*TAGS[:HEADERS], other])
    join(hub, player)
    assert received(player) == [TAGS[0], other, TAGS[2]]


def test_aggregates_are_split_and_keep_their_timestamps() -> None:
    hub, player = Hub(), new_player()
    join(hub, player)
    stream = hub.publish("live/cam", "publisher", 0.0)
    body = dump_aggregate([(tag.type_id, tag.timestamp + 100, tag.payload) for tag in TAGS[1:20]])
    feed(stream, [Tag(AGGREGATE, 7000, body)])
    assert received(player) == [tag._replace(timestamp=tag.timestamp + 7000) for tag in TAGS[1:20]]


def test_set_data_frame_is_stripped_and_amf3_data_becomes_amf0() -> None:
    hub, player = Hub(), new_player()
    join(hub, player)
    stream = hub.publish("live/cam", "publisher", 0.0)
    plain = TAGS[0].payload
    prefix = b"\x02\x00\x0d@setDataFrame"
    feed(stream, [Tag(DATA_AMF0, 0, prefix + plain), Tag(DATA_AMF3, 1, b"\0" + prefix + plain)])
    assert received(player) == [Tag(DATA_AMF0, 0, plain), Tag(DATA_AMF0, 1, plain)]


def test_a_second_publisher_is_refused_and_the_first_is_unaffected() -> None:
    hub, player = Hub(), new_player()
    join(hub, player)
    stream = hub.publish("live/cam", "first", 0.0)
    with pytest.raises(NameTaken):
        hub.publish("live/cam", "second", 0.0)
    hub.unpublish(stream, "second", 0.0)
    feed(stream, TAGS)
    assert received(player) == TAGS


def test_players_stay_when_a_name_is_published_again() -> None:
    hub, player = Hub(), new_player()
    join(hub, player)
    stream = hub.publish("live/cam", "first", 0.0)
    feed(stream, TAGS[:30])
    hub.unpublish(stream, "first", 1.0)
    received(player)
    feed(hub.publish("live/cam", "second", 2.0), TAGS)
    assert received(player) == TAGS
    assert isinstance(player.listener, Listener)
    assert player.listener.calls == ["started", "ended", "started"]


def test_a_stream_without_publisher_and_players_is_removed() -> None:
    hub, player = Hub(), new_player()
    stream = join(hub, player)
    hub.publish("live/cam", "publisher", 0.0)
    hub.unpublish(stream, "publisher", 1.0)
    hub.leave(stream, player)
    assert hub.streams == {}


def test_players_are_removed_after_waiting_30_seconds_for_a_publisher() -> None:
    hub, player = Hub(HubOptions(idle_grace_s=30.0)), new_player()
    join(hub, player, now=100.0)
    hub.tick(129.0)
    assert isinstance(player.listener, Listener)
    assert player.listener.calls == []
    hub.tick(130.0)
    assert player.listener.calls == ["missing"]
    assert hub.streams == {}


def test_the_number_of_players_is_limited() -> None:
    hub = Hub(HubOptions(max_players=1))
    join(hub, new_player())
    with pytest.raises(TooManyPlayers):
        join(hub, new_player())


def test_a_slow_player_skips_to_a_keyframe_and_others_are_unaffected() -> None:
    hub, fast, slow = Hub(), new_player(), new_player(SendQueue(max_messages=20))
    join(hub, fast)
    join(hub, slow)
    stream = hub.publish("live/cam", "publisher", 0.0)
    taken: list[Tag] = []
    for tag in TAGS:
        feed(stream, [tag])
        taken += received(fast)  # `slow` reads nothing meanwhile
    assert taken == TAGS
    assert slow.frames_skipped > 0
    left = received(slow)
    coded = left[HEADERS:]
    assert left[:HEADERS] == TAGS[:HEADERS]  # headers are never dropped
    assert len(coded) < 20
    if coded:
        assert coded[0].type_id == VIDEO and coded[0].payload[0] >> 4 == 1


def test_a_player_that_skips_gets_no_audio_before_the_keyframe() -> None:
    hub, player = Hub(), new_player(SendQueue(max_messages=20))
    join(hub, player)
    stream = hub.publish("live/cam", "publisher", 0.0)
    overflow = next(i for i, tag in enumerate(TAGS) if tag.timestamp > 600)
    feed(stream, TAGS[:overflow])
    received(player)
    got: list[Tag] = []
    for tag in TAGS[overflow:]:
        feed(stream, [tag])
        got += received(player)
    assert (got[0].type_id, got[0].payload[:2]) == (VIDEO, b"\x17\x01")


def test_a_player_can_decline_audio() -> None:
    hub, player = Hub(), new_player()
    join(hub, player)
    player.wants_audio = False
    feed(hub.publish("live/cam", "publisher", 0.0), TAGS)
    got = received(player)
    assert [tag for tag in got if tag.type_id == VIDEO] == [tag for tag in TAGS if tag.type_id == VIDEO]
    assert sum(tag.type_id == AUDIO for tag in got) == 1  # its configuration


def test_a_frame_is_encoded_once_per_chunk_size_and_stream_id() -> None:
    frame = Frame(VIDEO, 40, b"\x27\x01\0\0\0" + bytes(9000))
    assert frame.encoded(4096, 1) is frame.encoded(4096, 1)
    assert frame.encoded(4096, 2) != frame.encoded(4096, 1)
    assert len(frame.encoded(128, 1)) == len(frame.payload) + 12 + (len(frame.payload) - 1) // 128


def with_frame_type(tags: list[Tag], frame_type: int) -> list[Tag]:
    """Return enhanced tags with the frame type bits of every video tag replaced."""
    return [
        tag._replace(payload=bytes((tag.payload[0] & 0x8F | frame_type << 4,)) + tag.payload[1:])
        if tag.type_id == VIDEO
        else tag
        for tag in tags
    ]


@pytest.mark.parametrize("frame_type", [0, 6, 7])
def test_keyframes_with_a_reserved_frame_type_are_recognised_from_their_nal_units(frame_type: int) -> None:
    """MediaMTX writes frame type 0 in every enhanced video message."""
    tags = with_frame_type(list(Synthetic(seconds=3.0, gop=25, enhanced=True).tags()), frame_type)
    hub, early, late = Hub(), new_player(), new_player()
    join(hub, early)
    stream = hub.publish("live/cam", "publisher", 0.0)
    half = next(i for i, tag in enumerate(tags) if tag.timestamp > 1200)
    feed(stream, tags[:half])
    join(hub, late)
    feed(stream, tags[half:])
    assert received(early) == tags
    first_key = next(i for i, tag in enumerate(tags) if tag.type_id == VIDEO and tag.timestamp == 2000)
    assert received(late) == tags[:HEADERS] + tags[first_key:]


def test_a_player_does_not_wait_for_a_keyframe_longer_than_ten_seconds_of_media() -> None:
    """Video of an unknown codec with frame type 0 has no keyframe that the relay could recognise."""
    unknown = [Tag(VIDEO, ms, b"\x81zzzz" + bytes((1, 2, 3))) for ms in range(0, 12_000, 40)]
    sound = [Tag(AUDIO, ms, b"\xaf\x01" + bytes((1, 2))) for ms in range(20, 12_000, 40)]
    tags = sorted(unknown + sound, key=lambda tag: tag.timestamp)
    hub, player = Hub(), new_player()
    stream = hub.publish("live/cam", "publisher", 0.0)
    feed(stream, tags[:2])
    join(hub, player)
    feed(stream, tags[2:])
    assert received(player) == [tag for tag in tags if tag.timestamp >= 10_040]


def test_audio_does_not_wait_for_video_that_has_stopped() -> None:
    sound = [Tag(AUDIO, ms, b"\xaf\x01" + bytes((1, 2))) for ms in range(0, 15_000, 20)]
    hub, player = Hub(), new_player()
    stream = hub.publish("live/cam", "publisher", 0.0)
    feed(stream, TAGS[:4])
    join(hub, player)
    feed(stream, sound)
    assert received(player)[HEADERS:] == [tag for tag in sound if tag.timestamp >= 10_000]


def test_a_player_does_not_wait_forever_if_timestamps_do_not_advance() -> None:
    frame = Tag(VIDEO, 0, b"\x27\x01\0\0\0" + bytes(5))
    hub, player = Hub(), new_player(SendQueue(max_messages=5000))
    stream = hub.publish("live/cam", "publisher", 0.0)
    feed(stream, TAGS[:4])
    join(hub, player)
    feed(stream, [frame] * 2_010)
    assert received(player).count(frame) == 10
