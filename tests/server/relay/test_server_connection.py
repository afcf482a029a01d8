"""A whole connection without sockets, on a simulated clock: handshake, control messages, timers, limits."""

from __future__ import annotations

import itertools
import os
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.relay_simulation import Simulation

from rtmp_relay.client.client_options import ClientOptions
from rtmp_relay.client.client_session import PLAY, PUBLISH, ClientSession, Step
from rtmp_relay.frames import Tag
from rtmp_relay.relay.hub import Hub
from rtmp_relay.relay.server_connection import ConnectionOptions, ServerConnection, State
from rtmp_relay.rtmp_url import RtmpUrl
from rtmp_relay.synthetic_media import Synthetic
from rtmp_spark.codec import handshake
from rtmp_spark.codec.command import dump_command
from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.events import MessageReceived
from rtmp_spark.codec.message import Message

URL = RtmpUrl("rtmp", "127.0.0.1", 1935, "live", "cam")
TAGS = list(Synthetic(seconds=2.0).tags())


def new_connection(hub: Hub | None = None, **options: float) -> ServerConnection:
    return ServerConnection(1, hub or Hub(), ConnectionOptions(**options), os.urandom, 0.0)  # type: ignore[arg-type]


def drain(connection: ServerConnection, now: float = 0.0) -> bytes:
    wire = b""
    while data := connection.data_to_send(now):
        wire += data
    return wire


def after_handshake() -> tuple[ServerConnection, bytes]:
    """Return a connection right after the handshake, and the bytes that it sent after S2."""
    connection = new_connection()
    connection.receive_data(b"\3" + bytes(1536), 0.0)
    assert len(drain(connection)) == 1 + 1536 * 2
    connection.receive_data(bytes(1536), 0.1)
    return connection, drain(connection)


def messages(wire: bytes) -> list[tuple[int, bytes]]:
    events = RtmpDecoder(phase="chunks").receive_data(wire)
    return [(event.type_id, event.payload) for event in events if isinstance(event, MessageReceived)]


def test_window_bandwidth_and_chunk_size_follow_connect_in_this_order() -> None:
    """RTMP 1.0 7.2.1.1: the server sends them after connect, before Stream Begin and `_result`."""
    connection, wire = after_handshake()
    assert connection.state is State.COMMANDS
    assert wire == b""
    connect = dump_command("connect", 1.0, {"app": "live", "tcUrl": "rtmp://127.0.0.1/live"})
    connection.receive_data(RtmpEncoder().send(Message(3, 0, 20, 0, connect)), 0.2)
    wire = drain(connection)
    # Window Acknowledgement Size, Set Peer Bandwidth (dynamic), Set Chunk Size, Stream Begin 0
    assert messages(wire)[:4] == [
        (5, struct.pack(">I", 2_500_000)),
        (6, struct.pack(">IB", 2_500_000, 2)),
        (1, struct.pack(">I", 4096)),
        (4, struct.pack(">HI", 0, 0)),
    ]
    assert [type_id for type_id, _ in messages(wire)[4:]] == [20]
    assert wire.startswith(bytes.fromhex("02 000000 000004 05 00000000 002625a0"))


def test_a_refused_connect_gets_no_parameters() -> None:
    connection, _ = after_handshake()
    connection.receive_data(RtmpEncoder().send(Message(3, 0, 20, 0, dump_command("connect", 1.0, {"app": ""}))), 0.2)
    assert [type_id for type_id, _ in messages(drain(connection))] == [20]


@pytest.mark.parametrize("scheme", ["plain", "digest0", "digest1"])
def test_client_and_server_verify_each_others_handshake(scheme: str) -> None:
    session = ClientSession(URL, PUBLISH, os.urandom, ClientOptions(scheme=scheme))
    connection = new_connection()
    session.begin(0.0)
    up = session.data_to_send()
    connection.receive_data(up, 0.0)
    down = drain(connection)
    session.receive_data(down, 0.0)
    answer = session.data_to_send()
    c1, s1, s2, c2 = up[1:1537], down[1:1537], down[1537:3073], answer[:1536]
    kind = "echo" if scheme == "plain" else "signature"
    assert handshake.parse_packet1(c1, "client").scheme == scheme
    assert handshake.parse_packet1(s1, "server").scheme == scheme
    assert handshake.packet2_kind(s2, "server", c1) == kind
    assert handshake.packet2_kind(c2, "client", s1) == kind


@pytest.mark.parametrize("options", [ClientOptions(), ClientOptions(amf_version=3), ClientOptions(chunk_size=65536)])
def test_publish_and_play_with_either_amf_version_and_a_large_chunk_size(options: ClientOptions) -> None:
    simulation = Simulation()
    publisher = simulation.connect(PUBLISH, options=options)
    player = simulation.connect(PLAY, options=options)
    simulation.stream(publisher, TAGS)
    simulation.finish()
    assert player.received == TAGS


def test_delivery_does_not_depend_on_how_input_is_split() -> None:
    simulation = Simulation()
    publisher = simulation.connect(PUBLISH)
    player = simulation.connect(PLAY)
    for tag in TAGS[:8]:
        publisher.session.send_tag(tag)
        for byte in publisher.session.data_to_send():
            publisher.connection.receive_data(bytes((byte,)), simulation.now)
    simulation.exchange_all()
    assert player.received == TAGS[:8]


def test_timestamps_beyond_24_and_32_bits_are_forwarded_unchanged() -> None:
    for shift in (0xFFFFFF - 500, 0xFFFFFFFF - 500):
        simulation = Simulation()
        publisher, player = simulation.connect(PUBLISH), simulation.connect(PLAY)
        tags = [tag._replace(timestamp=tag.timestamp + shift) for tag in TAGS]
        simulation.stream(publisher, tags)
        simulation.finish()
        assert player.received == [tag._replace(timestamp=tag.timestamp & 0xFFFFFFFF) for tag in tags]


def test_the_relay_acknowledges_every_window_of_the_publisher() -> None:
    """Each acknowledgement holds the number of bytes received so far."""
    acks: list[int] = []
    simulation = Simulation()
    publisher = simulation.connect(PUBLISH, options=ClientOptions(window=10_000))
    sent = publisher.connection.endpoint.bytes_received
    for number in range(40):
        publisher.session.send_tag(Tag(8, number, b"\xaf\x01" + bytes(998)))
        data = publisher.session.data_to_send()
        sent += len(data)
        publisher.connection.receive_data(data, simulation.now)
        reply = drain(publisher.connection)
        publisher.session.receive_data(reply, simulation.now)
        if reply:
            acks.append(publisher.session.endpoint.peer_acknowledged)
            assert acks[-1] == sent
    assert len(acks) in (3, 4)
    assert all(later - earlier >= 10_000 for earlier, later in itertools.pairwise(acks))


def test_a_player_acknowledges_what_the_relay_sends() -> None:
    simulation = Simulation(connection=ConnectionOptions(window=20_000))
    publisher, player = simulation.connect(PUBLISH), simulation.connect(PLAY)
    simulation.stream(publisher, TAGS)
    assert player.connection.endpoint.peer_acknowledged > 50_000


def test_pings_are_answered_by_both_sides() -> None:
    simulation = Simulation(connection=ConnectionOptions(ping_s=1.0))
    client = simulation.connect(PUBLISH)
    simulation.wait(1.6)
    assert client.connection.endpoint.ping_answered_ms is not None
    client.session.endpoint.ping(4711)
    simulation.exchange_all()
    assert client.session.endpoint.ping_answered_ms == 4711


def test_a_client_that_sends_the_handshake_slowly_is_closed_after_5_seconds() -> None:
    connection = new_connection()
    for second in range(5):
        connection.receive_data(b"\3" if second == 0 else b"x", float(second))
        connection.tick(second + 0.9)
        assert connection.close_reason is None or second == 4
    connection.tick(5.0)
    assert connection.close_reason == "handshake timeout"


def test_a_client_without_connect_is_closed_after_20_seconds() -> None:
    connection, _ = after_handshake()
    connection.tick(19.9)
    assert connection.close_reason is None
    connection.tick(20.0)
    assert connection.close_reason == "connect timeout"


def test_an_idle_publisher_is_closed_after_30_seconds() -> None:
    simulation = Simulation()
    client = simulation.connect(PUBLISH)
    start = simulation.now
    for second in range(1, 31):
        client.connection.tick(start + second)
    assert client.connection.close_reason == "idle"


def test_a_player_that_reads_frames_but_answers_no_ping_stays_connected() -> None:
    simulation = Simulation()
    publisher, player = simulation.connect(PUBLISH), simulation.connect(PLAY)
    start = simulation.now
    for second in range(1, 60):
        publisher.session.send_tag(Tag(8, second * 1000, b"\xaf\x01x"))
        publisher.connection.receive_data(publisher.session.data_to_send(), start + second)
        drain(player.connection, start + second)  # the player reads and never sends a byte
        player.connection.tick(start + second)
        publisher.connection.tick(start + second)
        publisher.session.receive_data(drain(publisher.connection), start + second)
    assert player.connection.close_reason is None


def test_a_stalled_player_is_closed_after_10_seconds_and_a_recovered_one_is_not() -> None:
    simulation = Simulation()
    publisher = simulation.connect(PUBLISH)
    stalled, recovered = simulation.connect(PLAY), simulation.connect(PLAY)
    start = simulation.now
    for client in (stalled, recovered):
        client.connection.blocked(start)
    for second in range(1, 10):
        publisher.session.send_tag(Tag(8, second * 1000, b"\xaf\x01x"))
        publisher.connection.receive_data(publisher.session.data_to_send(), start + second)
        for client in (stalled, recovered):
            client.connection.tick(start + second)
    drain(recovered.connection, start + 9.5)
    for client in (stalled, recovered):
        client.connection.tick(start + 10.5)
    assert stalled.connection.close_reason == "the client reads too slowly"
    assert recovered.connection.close_reason is None


def test_a_client_that_reads_nothing_cannot_exceed_the_send_queue() -> None:
    """The client sends pings and never reads the responses."""
    connection, _ = after_handshake()
    ping = bytes.fromhex("02 000000 000006 04 00000000 0006 00000001")
    for _ in range(600):
        connection.receive_data(ping, 1.0)
    assert len(connection.queue) <= 512
    assert connection.close_reason == "the send queue is full"


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        ("02 000000 000004 01 00000000 00000000", "CHUNK_SIZE_ZERO"),
        ("02 000000 000004 01 00000000 80001000", "CHUNK_SIZE_BIT31"),
        ("04 000000 ffffff 09 01000000", "CHUNK_LIMIT"),
    ],
)
def test_a_fatal_violation_closes_the_connection_with_its_code(wire: str, reason: str) -> None:
    connection, _ = after_handshake()
    connection.receive_data(bytes.fromhex(wire) + bytes(128), 1.0)
    assert connection.close_reason is not None
    assert connection.close_reason.startswith(reason)
    assert connection.state is State.DISCONNECTING


@pytest.mark.parametrize("first", [b"\x06" + bytes(1536), b"GET / HTTP/1.1\r\n", b"\x16\x03\x01" + b"\x33" * 2000])
def test_connections_of_other_protocols_are_closed(first: bytes) -> None:
    connection = new_connection()
    connection.receive_data(first, 0.0)
    if first[0] >= 32 or first[0] == 6:
        assert connection.close_reason is not None
    else:  # TLS begins with 22, a version that RTMP reserves: answered with 3, then closed for what follows
        connection.receive_data(b"\x33" * 5000, 0.0)
        connection.tick(5.0)
        assert connection.close_reason is not None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=12), st.booleans())
def test_garbage_never_raises(pieces: list[bytes], handshake_done: bool) -> None:
    connection = after_handshake()[0] if handshake_done else new_connection()
    for piece in pieces:
        connection.receive_data(piece, 1.0)
        drain(connection)
    connection.tick(2.0)
    connection.lost(3.0)
    assert connection.state is State.CLOSED


@pytest.fixture(scope="module")
def published() -> bytes:
    """Everything that a publisher sends, from C0 to deleteStream."""
    sent = bytearray()

    class ClientBytes:
        """An observer that collects what the client sends."""

        def opened(self, number: int, client: tuple[str, int], server: tuple[str, int], time_ns: int) -> None:
            pass

        def data(self, number: int, from_client: bool, data: bytes, time_ns: int) -> None:
            if from_client:
                sent.extend(data)

        def closed(self, number: int, by_client: bool, reset: bool, time_ns: int) -> None:
            pass

    simulation = Simulation((ClientBytes(),))
    client = simulation.connect(PUBLISH)
    simulation.stream(client, list(Synthetic(seconds=0.5).tags()))
    simulation.finish()
    return bytes(sent)


def test_the_recorded_bytes_of_a_publisher_publish_again(published: bytes) -> None:
    hub = Hub()
    connection = new_connection(hub)
    stop = published.index(b"FCUnpublish") - 20
    connection.receive_data(published[:stop], 0.0)
    assert set(hub.streams) == {"live/cam"}
    connection.receive_data(published[stop:], 0.0)
    assert hub.streams == {}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_damaged_publisher_never_raises(published: bytes, data: st.DataObject) -> None:
    wire = bytearray(published)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(3073, len(wire) - 1))
        kind = data.draw(st.sampled_from(("change", "remove", "insert")))
        if kind == "change":
            wire[at] = data.draw(st.integers(0, 255))
        elif kind == "remove":
            del wire[at : at + data.draw(st.integers(1, 50))]
        else:
            wire[at:at] = data.draw(st.binary(min_size=1, max_size=50))
    hub = Hub()
    connection = new_connection(hub)
    for at in range(0, len(wire), 1460):
        connection.receive_data(bytes(wire[at : at + 1460]), 0.0)
        drain(connection)
    connection.lost(1.0)
    assert hub.streams == {}


def test_shutting_down_notifies_publishers_and_players() -> None:
    simulation = Simulation()
    publisher, player = simulation.connect(PUBLISH), simulation.connect(PLAY)
    simulation.hub.close(simulation.now)
    for client in (publisher, player):
        client.connection.shut_down(simulation.now)
    simulation.exchange_all()
    assert publisher.session.step is Step.ENDED
    assert player.session.step is Step.ENDED
    assert publisher.session.refusal is not None
    assert "AppShutdown" in publisher.session.refusal
    assert player.session.refusal is None  # for the player the stream had already ended


def test_the_log_hides_the_stream_name_in_texts_of_the_client(caplog: pytest.LogCaptureFixture) -> None:
    key = "sk7f3aSECRETKEY99x"
    connection, _ = after_handshake()
    encoder = RtmpEncoder()
    with caplog.at_level("DEBUG"):
        for stream_id, payload in (
            (0, dump_command("connect", 1.0, {"app": key, "tcUrl": f"rtmp://h/{key}", "flashVer": f"x {key}"})),
            (0, dump_command("createStream", 2.0, None)),
            (1, dump_command("publish", 3.0, None, key, "live")),
        ):
            connection.receive_data(encoder.send(Message(3, 0, 20, stream_id, payload)), 0.2)
    assert "published by x key-" in caplog.text
    assert key not in caplog.text
