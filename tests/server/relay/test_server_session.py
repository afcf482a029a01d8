"""The commands that the relay handles and every refusal, without sockets."""

from __future__ import annotations

import pytest

from rtmp_relay.frames import Frame
from rtmp_relay.relay.hub import Hub
from rtmp_relay.relay.send_queue import SendQueue
from rtmp_relay.relay.server_session import ServerSession
from rtmp_relay.relay.server_streams import SessionOptions
from rtmp_relay.synthetic_media import Synthetic
from rtmp_spark.codec import amf0, command
from rtmp_spark.codec.amf import AmfObject
from rtmp_spark.codec.events import MessageReceived
from rtmp_spark.codec.limits import STREAMS_PER_CONNECTION
from rtmp_spark.codec.message import COMMAND_AMF0, COMMAND_AMF3, USER_CONTROL, Message


class Client:
    """Sends commands to a session and parses its replies."""

    def __init__(self, hub: Hub | None = None, options: SessionOptions | None = None, amf_version: int = 0) -> None:
        self.replies: list[Message] = []
        self.queue = SendQueue()
        self.session = ServerSession(hub or Hub(), self.replies.append, self.queue, 4096, options or SessionOptions())
        self.amf_version = amf_version
        self.now = 0.0

    def message(self, type_id: int, stream_id: int, payload: bytes, timestamp: int = 0) -> None:
        self.session.receive(
            MessageReceived(0, 0, 0, 3, type_id, stream_id, timestamp, 0, None, "absolute", None, len(payload), 1, 128,
                            "complete", 0, False, payload),
            self.now,
        )  # fmt: skip

    def call(self, name: str, transaction_id: float, *args: object, stream_id: int = 0) -> list[list[object]]:
        """Send a command. Returns the replies, each as [name, transaction id, ...] or [event, stream id]."""
        del self.replies[:]
        payload = amf0.dump_values([name, transaction_id, *args])
        if self.amf_version == 3:
            self.message(COMMAND_AMF3, stream_id, b"\0" + payload)
        else:
            self.message(COMMAND_AMF0, stream_id, payload)
        return self.parsed_replies()

    def parsed_replies(self) -> list[list[object]]:
        out: list[list[object]] = []
        for reply in self.replies:
            if reply.type_id == USER_CONTROL:
                out.append([int.from_bytes(reply.payload[:2], "big"), int.from_bytes(reply.payload[2:6], "big")])
            else:
                assert reply.type_id == (COMMAND_AMF3 if self.amf_version == 3 else COMMAND_AMF0)
                parsed = command.parse_command(reply.type_id, reply.payload)
                assert not parsed.violations
                out.append([parsed.name, parsed.transaction_id, *parsed.args])
        return out

    def connect(self, app: str = "live", **more: object) -> list[list[object]]:
        return self.call("connect", 1.0, {"app": app, "flashVer": "test", "tcUrl": f"rtmp://h/{app}", **more})

    def stream(self) -> int:
        [[name, transaction_id, nothing, stream_id]] = self.call("createStream", 2.0, None)
        assert (name, transaction_id, nothing) == ("_result", 2.0, None)
        assert isinstance(stream_id, float)
        return int(stream_id)

    def publish(self, name: object = "cam") -> list[list[object]]:
        stream_id = self.stream()
        return self.call("publish", 3.0, None, name, "live", stream_id=stream_id)

    def play(self, name: object = "cam") -> list[list[object]]:
        stream_id = self.stream()
        return self.call("play", 0.0, None, name, stream_id=stream_id)


def code(reply: list[object]) -> object:
    info = reply[3]
    assert isinstance(info, AmfObject)
    return info["code"]


def description(reply: list[object]) -> object:
    info = reply[3]
    assert isinstance(info, AmfObject)
    return info["description"]


def ready(hub: Hub | None = None, options: SessionOptions | None = None, amf_version: int = 0) -> Client:
    client = Client(hub, options, amf_version)
    client.connect()
    return client


@pytest.mark.parametrize("amf_version", [0, 3])
def test_connect_succeeds_in_the_amf_version_of_the_client(amf_version: int) -> None:
    client = Client(amf_version=amf_version)
    begin, result = client.connect(objectEncoding=float(amf_version))
    assert begin == [0, 0]  # Stream Begin 0
    assert result[:2] == ["_result", 1.0]
    assert code(result) == "NetConnection.Connect.Success"
    assert isinstance(result[3], AmfObject)
    assert result[3]["objectEncoding"] == amf_version
    assert isinstance(result[2], AmfObject)
    assert "capsEx" not in result[2]
    assert (client.session.app, client.session.flash_ver) == ("live", "test")


def test_enhanced_capabilities_are_answered() -> None:
    client = Client()
    _, result = client.connect(fourCcList=["hvc1", "av01"], capsEx=2.0)
    properties = result[2]
    assert isinstance(properties, AmfObject)
    video = properties["videoFourCcInfoMap"]
    assert isinstance(video, AmfObject)
    assert video["*"] == 4  # forward
    assert properties["capsEx"] == 2 | 4 | 8


@pytest.mark.parametrize("app", ["", "../x", "a\0b", "x" * 300, "a//b"])
def test_an_invalid_app_is_refused_with_a_reply_before_the_connection_closes(app: str) -> None:
    client = Client()
    [error] = client.connect(app)
    assert error[:2] == ["_error", 1.0]
    assert code(error) == "NetConnection.Connect.InvalidApp"
    assert client.session.close_reason is not None


def test_a_command_before_connect_is_refused() -> None:
    client = Client()
    [error] = client.call("createStream", 7.0, None)
    assert error[:2] == ["_error", 7.0]
    assert client.session.close_reason is not None


def test_the_fmle_commands_before_publish_are_answered() -> None:
    client = ready()
    assert client.call("releaseStream", 2.0, None, "cam") == [["_result", 2.0, None]]
    result, notice = client.call("FCPublish", 3.0, None, "cam")
    assert result == ["_result", 3.0, None]
    assert notice[0] == "onFCPublish"
    assert code(notice) == "NetStream.Publish.Start"
    assert client.call("_checkbw", 4.0, None) == [["_result", 4.0, None]]
    assert client.call("getStreamLength", 5.0, None, "cam") == [["_result", 5.0, None, 0.0]]


def test_publish_sends_stream_begin_and_a_status_on_the_stream() -> None:
    client = ready()
    begin, status = client.publish()
    assert begin == [0, 1]
    assert code(status) == "NetStream.Publish.Start"
    assert [reply.stream_id for reply in client.replies] == [0, 1]


def test_several_streams_on_one_connection_are_independent() -> None:
    hub = Hub()
    client = ready(hub)
    client.publish("a")
    client.publish("b")
    assert client.session.streams.uses.keys() == {1, 2}
    client.message(8, 2, b"\xaf\x01data")
    assert hub.streams["live/a"].frames == 0
    assert hub.streams["live/b"].frames == 1
    client.call("closeStream", 0.0, None, stream_id=1)
    assert set(hub.streams) == {"live/b"}


def test_a_second_publisher_gets_bad_name_and_the_first_keeps_publishing() -> None:
    hub = Hub()
    first, second = ready(hub), ready(hub)
    first.publish()
    [status] = second.publish()
    assert code(status) == "NetStream.Publish.BadName"
    assert second.session.close_reason is not None
    assert first.session.close_reason is None
    assert hub.streams["live/cam"].publisher is first.session.streams


def test_a_refusal_does_not_close_a_connection_that_still_publishes() -> None:
    client = ready()
    client.publish("a")
    [status] = client.publish("a")
    assert code(status) == "NetStream.Publish.BadName"
    assert client.session.close_reason is None


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/passwd", "a\0b", "x" * 65_000, "", "a/../b", "a\\b", 7.0, None, True]
)
def test_bad_stream_names_are_refused(name: object) -> None:
    publisher, player = ready(), ready()
    assert [code(status) for status in publisher.publish(name)] == ["NetStream.Publish.BadName"]
    assert [code(status) for status in player.play(name)] == ["NetStream.Play.Failed"]


@pytest.mark.parametrize("stream_id", [0, 5])
def test_publish_on_a_stream_that_was_not_created_is_refused_for_that_reason(stream_id: int) -> None:
    """rtmp-go publishes on stream 0 after createStream returned 1; the name is not at fault."""
    client = ready()
    client.call("createStream", 2.0, None)
    [status] = client.call("publish", 3.0, None, "cam", "live", stream_id=stream_id)
    assert code(status) == "NetStream.Failed"
    assert description(status) == (
        f"publish on message stream {stream_id}, which does not exist; createStream returned 1."
    )
    assert client.session.close_reason is not None


def test_an_empty_name_is_refused_for_that_reason() -> None:
    [status] = ready().publish("")
    assert (code(status), description(status)) == ("NetStream.Publish.BadName", "the stream name is empty.")


@pytest.mark.parametrize(
    ("name", "allowed"), [("cam?key=open", True), ("cam?key=shut", False), ("cam", False), ("cam?key=ope", False)]
)
def test_publish_and_play_need_a_valid_key(name: str, allowed: bool) -> None:
    options = SessionOptions(publish_keys=("open",), play_keys=("open",))
    hub = Hub()
    publisher, player = ready(hub, options), ready(hub, options)
    published = [code(reply) for reply in publisher.publish(name) if reply[0] == "onStatus"]
    played = [code(reply) for reply in player.play(name) if reply[0] == "onStatus"]
    if allowed:
        assert published == ["NetStream.Publish.Start"]
        assert played == ["NetStream.Play.Reset", "NetStream.Play.Start"]
        assert set(hub.streams) == {"live/cam"}  # the key is not part of the name
    else:
        assert published == ["NetStream.Publish.Denied"]
        assert played == ["NetStream.Play.Failed"]


def test_the_key_may_be_in_the_connect_url() -> None:
    client = Client(options=SessionOptions(publish_keys=("open",)))
    client.connect("live?key=open")
    assert code(client.publish()[-1]) == "NetStream.Publish.Start"


def test_play_sends_reset_and_start_before_the_headers() -> None:
    hub = Hub()
    publisher, player = ready(hub), ready(hub)
    publisher.publish()
    for tag in list(Synthetic(seconds=1).tags())[:3]:
        publisher.message(tag.type_id, 1, tag.payload, tag.timestamp)
    begin, reset, start = player.play()
    assert begin == [0, 1]
    assert [code(reset), code(start)] == ["NetStream.Play.Reset", "NetStream.Play.Start"]
    assert len(player.queue) == 3


class Record:
    """A frame sink that keeps frames in memory."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.closed = False

    def write(self, frame: Frame) -> None:
        self.frames.append(frame)

    def close(self) -> None:
        self.closed = True


def test_play_without_the_reset_flag_sends_no_reset() -> None:
    """RTMP 1.0 7.2.2.1: NetStream.Play.Reset is sent only if the play command has set the reset flag."""
    client = ready()
    stream_id = client.stream()
    replies = client.call("play", 0.0, None, "cam", -2.0, -1.0, False, stream_id=stream_id)
    assert [code(reply) for reply in replies if reply[0] == "onStatus"] == ["NetStream.Play.Start"]


def test_a_recorded_stream_is_announced_and_its_recording_is_closed() -> None:
    record = Record()
    hub = Hub(open_recorder=lambda key: record)
    publisher, player = ready(hub), ready(hub)
    publisher.publish()
    assert player.play()[0] == [4, 1]  # Stream Is Recorded
    publisher.message(8, 1, b"\xaf\x01x")
    publisher.session.close(1.0)
    assert [frame.payload for frame in record.frames] == [b"\xaf\x01x"]
    assert record.closed


@pytest.mark.parametrize(
    "leave", [("deleteStream", 1.0), ("deleteStream", "cam"), ("FCUnpublish", "cam"), ("closeStream", None), None]
)
def test_players_are_notified_when_the_publisher_leaves(leave: tuple[str, object] | None) -> None:
    hub = Hub()
    publisher, player = ready(hub), ready(hub)
    publisher.publish()
    player.play()
    del player.replies[:]
    if leave is None:
        publisher.session.close(1.0)
    else:
        publisher.call(leave[0], 9.0, None, leave[1], stream_id=1 if leave[0] == "closeStream" else 0)
    eof, status = player.parsed_replies()
    assert eof == [1, 1]  # Stream EOF
    assert code(status) == "NetStream.Play.UnpublishNotify"
    assert code(publisher.publish()[-1]) == "NetStream.Publish.Start" if leave else True


def test_unpublishing_is_confirmed() -> None:
    client = ready()
    client.publish()
    assert [code(reply) for reply in client.call("closeStream", 0.0, None, stream_id=1)] == [
        "NetStream.Unpublish.Success"
    ]


def test_a_waiting_player_is_notified_when_a_publisher_starts() -> None:
    hub = Hub()
    player, publisher = ready(hub), ready(hub)
    player.play()
    del player.replies[:]
    publisher.publish()
    begin, status = player.parsed_replies()
    assert begin == [0, 1]
    assert code(status) == "NetStream.Play.PublishNotify"


def test_a_waiting_player_is_refused_after_30_seconds() -> None:
    hub = Hub()
    player = ready(hub)
    player.play()
    del player.replies[:]
    hub.tick(31.0)
    [status] = player.parsed_replies()
    assert code(status) == "NetStream.Play.StreamNotFound"
    assert player.session.close_reason is not None


def test_pause_and_resume() -> None:
    hub = Hub()
    publisher, player = ready(hub), ready(hub)
    publisher.publish()
    player.play()
    tags = list(Synthetic(seconds=1, gop=5).tags())
    for tag in tags[:5]:
        publisher.message(tag.type_id, 1, tag.payload, tag.timestamp)
    [status] = player.call("pause", 0.0, None, True, 100.0, stream_id=1)
    assert code(status) == "NetStream.Pause.Notify"
    waiting = len(player.queue)
    for tag in tags[5:15]:
        publisher.message(tag.type_id, 1, tag.payload, tag.timestamp)
    assert len(player.queue) == waiting
    [status] = player.call("pause", 0.0, None, False, 100.0, stream_id=1)
    assert code(status) == "NetStream.Unpause.Notify"
    assert len(player.queue) == waiting + 3  # the headers again; frames follow from the next keyframe


def test_seek_is_refused_and_the_connection_stays_open() -> None:
    hub = Hub()
    publisher, player = ready(hub), ready(hub)
    publisher.publish()
    player.play()
    [status] = player.call("seek", 0.0, None, 1000.0, stream_id=1)
    assert code(status) == "NetStream.Seek.Failed"
    assert player.session.close_reason is None


def test_receive_video_can_be_switched_off_and_on() -> None:
    hub = Hub()
    publisher, player = ready(hub), ready(hub)
    publisher.publish()
    player.play()
    assert player.call("receiveVideo", 0.0, None, False, stream_id=1) == []
    replies = player.call("receiveVideo", 0.0, None, True, stream_id=1)
    assert [code(reply) for reply in replies] == ["NetStream.Seek.Notify", "NetStream.Play.Start"]


def test_an_unknown_command_is_refused_and_the_connection_stays_open() -> None:
    client = ready()
    [error] = client.call("frobnicate", 8.0, None)
    assert error[:2] == ["_error", 8.0]
    assert client.call("frobnicate", 0.0, None) == []
    assert client.session.close_reason is None


def test_the_number_of_streams_per_connection_is_limited() -> None:
    client = ready()
    for _ in range(STREAMS_PER_CONNECTION):
        client.stream()
    [error] = client.call("createStream", 99.0, None)
    assert error[:2] == ["_error", 99.0]


@pytest.mark.parametrize("payload", [b"", b"\xff", b"\x02\x00\x07connect", b"\x02\x00\x05pause\x05\x05\x03"])
def test_damaged_commands_are_ignored(payload: bytes) -> None:
    client = ready()
    client.message(COMMAND_AMF0, 0, payload)
    client.message(COMMAND_AMF3, 0, payload)
    assert code(client.publish()[-1]) == "NetStream.Publish.Start"


def test_media_on_an_unpublished_stream_is_ignored() -> None:
    client = ready()
    client.stream()
    client.message(9, 1, b"\x17\x01\0\0\0")
    client.message(9, 77, b"\x17\x01\0\0\0")
    assert client.session.close_reason is None
