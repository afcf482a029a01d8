"""A whole connection without sockets, on a clock that is only counted: handshake, control burst, timers, limits."""

from __future__ import annotations

import itertools
import os
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtmp_relay.caller import PLAY, PUBLISH, Caller, CallerOptions, Step
from rtmp_relay.connection import ConnectionOptions, ServerConnection, State
from rtmp_relay.hub import Hub
from rtmp_relay.laboratory import Laboratory
from rtmp_relay.synthetic import Synthetic, Tag
from rtmp_relay.url import RtmpUrl
from rtmp_spark.codec import handshake
from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.events import MessageReceived

URL = RtmpUrl("rtmp", "127.0.0.1", 1935, "live", "cam")
TAGS = list(Synthetic(seconds=2.0).tags())


def new_connection(hub: Hub | None = None, **options: float) -> ServerConnection:
    return ServerConnection(1, hub or Hub(), ConnectionOptions(**options), os.urandom, 0.0)  # type: ignore[arg-type]


def drain(connection: ServerConnection, now: float = 0.0) -> bytes:
    wire = b""
    while data := connection.data_to_send(now):
        wire += data
    return wire


def shaken() -> tuple[ServerConnection, bytes]:
    """A connection right after the handshake, and what it said behind S2."""
    connection = new_connection()
    connection.receive_data(b"\3" + bytes(1536), 0.0)
    assert len(drain(connection)) == 1 + 1536 * 2
    connection.receive_data(bytes(1536), 0.1)
    return connection, drain(connection)


def messages(wire: bytes) -> list[tuple[int, bytes]]:
    events = RtmpDecoder(phase="chunks").receive_data(wire)
    return [(event.type_id, event.payload) for event in events if isinstance(event, MessageReceived)]


def test_the_control_burst_follows_the_handshake_in_the_contracts_order() -> None:
    connection, wire = shaken()
    assert connection.state is State.COMMANDS
    # window acknowledgement size, set peer bandwidth dynamic, set chunk size: all on csid 2 with full headers first
    assert messages(wire) == [
        (5, struct.pack(">I", 2_500_000)),
        (6, struct.pack(">IB", 2_500_000, 2)),
        (1, struct.pack(">I", 4096)),
    ]
    assert wire.startswith(bytes.fromhex("02 000000 000004 05 00000000 002625a0"))


@pytest.mark.parametrize("scheme", ["plain", "digest0", "digest1"])
def test_both_sides_handshakes_verify(scheme: str) -> None:
    caller = Caller(URL, PUBLISH, os.urandom, CallerOptions(scheme=scheme))
    connection = new_connection()
    caller.begin(0.0)
    up = caller.data_to_send()
    connection.receive_data(up, 0.0)
    down = drain(connection)
    caller.receive_data(down, 0.0)
    answer = caller.data_to_send()
    c1, s1, s2, c2 = up[1:1537], down[1:1537], down[1537:3073], answer[:1536]
    kind = "echo" if scheme == "plain" else "signature"
    assert handshake.parse_packet1(c1, "client").scheme == scheme
    assert handshake.parse_packet1(s1, "server").scheme == scheme
    assert handshake.packet2_kind(s2, "server", c1) == kind
    assert handshake.packet2_kind(c2, "client", s1) == kind


@pytest.mark.parametrize("options", [CallerOptions(), CallerOptions(amf_version=3), CallerOptions(chunk_size=65536)])
def test_a_publisher_and_a_player_of_either_amf(options: CallerOptions) -> None:
    laboratory = Laboratory()
    publisher = laboratory.call(PUBLISH, options=options)
    player = laboratory.call(PLAY, options=options)
    laboratory.stream(publisher, TAGS)
    laboratory.finish()
    assert player.received == TAGS


def test_one_byte_at_a_time_changes_nothing() -> None:
    laboratory = Laboratory()
    publisher = laboratory.call(PUBLISH)
    player = laboratory.call(PLAY)
    for tag in TAGS[:8]:
        publisher.caller.send_tag(tag)
        for byte in publisher.caller.data_to_send():
            publisher.connection.receive_data(bytes((byte,)), laboratory.now)
    laboratory.settle()
    assert player.received == TAGS[:8]


def test_times_beyond_24_and_32_bits_pass_unchanged() -> None:
    for shift in (0xFFFFFF - 500, 0xFFFFFFFF - 500):
        laboratory = Laboratory()
        publisher, player = laboratory.call(PUBLISH), laboratory.call(PLAY)
        tags = [tag._replace(timestamp=tag.timestamp + shift) for tag in TAGS]
        laboratory.stream(publisher, tags)
        laboratory.finish()
        assert player.received == [tag._replace(timestamp=tag.timestamp & 0xFFFFFFFF) for tag in tags]


def test_acknowledgements_at_the_window_of_the_peer() -> None:
    """Three windows of media bring three acknowledgements, each with the bytes received until then."""
    acks: list[int] = []
    laboratory = Laboratory()
    publisher = laboratory.call(PUBLISH, options=CallerOptions(window=10_000))
    sent = publisher.connection.endpoint.bytes_received
    for number in range(40):
        publisher.caller.send_tag(Tag(8, number, b"\xaf\x01" + bytes(998)))
        data = publisher.caller.data_to_send()
        sent += len(data)
        publisher.connection.receive_data(data, laboratory.now)
        reply = drain(publisher.connection)
        publisher.caller.receive_data(reply, laboratory.now)
        if reply:
            acks.append(publisher.caller.endpoint.peer_acknowledged)
            assert acks[-1] == sent
    assert len(acks) in (3, 4)
    assert all(later - earlier >= 10_000 for earlier, later in itertools.pairwise(acks))


def test_a_player_acknowledges_to_the_relay() -> None:
    laboratory = Laboratory(connection=ConnectionOptions(window=20_000))
    publisher, player = laboratory.call(PUBLISH), laboratory.call(PLAY)
    laboratory.stream(publisher, TAGS)
    assert player.connection.endpoint.peer_acknowledged > 50_000


def test_pings_are_answered_both_ways() -> None:
    laboratory = Laboratory(connection=ConnectionOptions(ping_s=1.0))
    party = laboratory.call(PUBLISH)
    laboratory.wait(1.6)
    assert party.connection.endpoint.ping_answered_ms is not None
    party.caller.endpoint.ping(4711)
    laboratory.settle()
    assert party.caller.endpoint.ping_answered_ms == 4711


def test_slowloris_in_the_handshake_is_closed_at_5_seconds() -> None:
    connection = new_connection()
    for second in range(5):
        connection.receive_data(b"\3" if second == 0 else b"x", float(second))
        connection.tick(second + 0.9)
        assert connection.close_reason is None or second == 4
    connection.tick(5.0)
    assert connection.close_reason == "no handshake in time"


def test_no_connect_in_20_seconds() -> None:
    connection, _ = shaken()
    connection.tick(19.9)
    assert connection.close_reason is None
    connection.tick(20.0)
    assert connection.close_reason == "no connect in time"


def test_an_idle_publisher_is_closed_after_30_seconds() -> None:
    laboratory = Laboratory()
    party = laboratory.call(PUBLISH)
    start = laboratory.now
    for second in range(1, 31):
        party.connection.tick(start + second)
    assert party.connection.close_reason == "idle"


def test_a_player_that_answers_no_ping_yet_takes_frames_stays() -> None:
    laboratory = Laboratory()
    publisher, player = laboratory.call(PUBLISH), laboratory.call(PLAY)
    start = laboratory.now
    for second in range(1, 60):
        publisher.caller.send_tag(Tag(8, second * 1000, b"\xaf\x01x"))
        publisher.connection.receive_data(publisher.caller.data_to_send(), start + second)
        drain(player.connection, start + second)  # taken, and never a byte comes back
        player.connection.tick(start + second)
        publisher.connection.tick(start + second)
        publisher.caller.receive_data(drain(publisher.connection), start + second)
    assert player.connection.close_reason is None


def test_a_stalled_player_is_cut_off_after_10_seconds_and_a_recovered_one_is_not() -> None:
    laboratory = Laboratory()
    publisher = laboratory.call(PUBLISH)
    stalled, recovered = laboratory.call(PLAY), laboratory.call(PLAY)
    start = laboratory.now
    for party in (stalled, recovered):
        party.connection.blocked(start)
    for second in range(1, 10):
        publisher.caller.send_tag(Tag(8, second * 1000, b"\xaf\x01x"))
        publisher.connection.receive_data(publisher.caller.data_to_send(), start + second)
        for party in (stalled, recovered):
            party.connection.tick(start + second)
    drain(recovered.connection, start + 9.5)
    for party in (stalled, recovered):
        party.connection.tick(start + 10.5)
    assert stalled.connection.close_reason == "reads too slowly"
    assert recovered.connection.close_reason is None


def test_a_peer_that_reads_nothing_at_all_cannot_make_us_hold_more_than_the_bound() -> None:
    """Pings asked for without end are answered without end, until they are not."""
    connection, _ = shaken()
    ping = bytes.fromhex("02 000000 000006 04 00000000 0006 00000001")
    for _ in range(600):
        connection.receive_data(ping, 1.0)
    assert len(connection.outbox) <= 512
    assert connection.close_reason == "too much waits to be sent"


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        ("02 000000 000004 01 00000000 00000000", "CHUNK_SIZE_ZERO"),
        ("02 000000 000004 01 00000000 80001000", "CHUNK_SIZE_BIT31"),
        ("04 000000 ffffff 09 01000000", "CHUNK_LIMIT"),
    ],
)
def test_what_is_not_forgiven_closes_with_its_reason(wire: str, reason: str) -> None:
    connection, _ = shaken()
    connection.receive_data(bytes.fromhex(wire) + bytes(128), 1.0)
    assert connection.close_reason is not None
    assert connection.close_reason.startswith(reason)
    assert connection.state is State.DISCONNECTING


@pytest.mark.parametrize("first", [b"\x06" + bytes(1536), b"GET / HTTP/1.1\r\n", b"\x16\x03\x01" + b"\x33" * 2000])
def test_other_protocols_are_closed_at_once(first: bytes) -> None:
    connection = new_connection()
    connection.receive_data(first, 0.0)
    if first[0] >= 32 or first[0] == 6:
        assert connection.close_reason is not None
    else:  # TLS begins with 22, a version RTMP reserves: answered with 3, then cut off for what follows
        connection.receive_data(b"\x33" * 5000, 0.0)
        connection.tick(5.0)
        assert connection.close_reason is not None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=12), st.booleans())
def test_garbage_never_raises(pieces: list[bytes], after_handshake: bool) -> None:
    connection = shaken()[0] if after_handshake else new_connection()
    for piece in pieces:
        connection.receive_data(piece, 1.0)
        drain(connection)
    connection.tick(2.0)
    connection.lost(3.0)
    assert connection.state is State.CLOSED


@pytest.fixture(scope="module")
def published() -> bytes:
    """Everything a publisher sends, from C0 to goodbye."""
    sent = bytearray()

    class Ear:
        def opened(self, number: int, client: tuple[str, int], server: tuple[str, int], time_ns: int) -> None:
            pass

        def data(self, number: int, from_client: bool, data: bytes, time_ns: int) -> None:
            if from_client:
                sent.extend(data)

        def closed(self, number: int, by_client: bool, reset: bool, time_ns: int) -> None:
            pass

    laboratory = Laboratory((Ear(),))
    party = laboratory.call(PUBLISH)
    laboratory.stream(party, list(Synthetic(seconds=0.5).tags()))
    laboratory.finish()
    return bytes(sent)


def test_a_recorded_publisher_is_served_again(published: bytes) -> None:
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


def test_shutting_down_says_so() -> None:
    laboratory = Laboratory()
    publisher, player = laboratory.call(PUBLISH), laboratory.call(PLAY)
    laboratory.hub.close(laboratory.now)
    for party in (publisher, player):
        party.connection.shut_down(laboratory.now)
    laboratory.settle()
    assert publisher.caller.step is Step.ENDED
    assert player.caller.step is Step.ENDED
    assert publisher.caller.refusal is not None
    assert "AppShutdown" in publisher.caller.refusal
    assert player.caller.refusal is None  # the stream had ended for it already
