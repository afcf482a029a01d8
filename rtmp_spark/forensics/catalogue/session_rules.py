"""TIME_*, SESSION_*: rules about timestamps, delivery over time, and how sessions end."""

from __future__ import annotations

from rtmp_spark.forensics.catalogue.entry import FLV, NO_ACTION, PUBLISH, SPEC, Cause, Entry

# The values of connections.close_cause.
CLOSE_CAUSES = (
    Cause(
        "teardown",
        "One side sent deleteStream, FCUnpublish, Stream EOF or Play.Stop and then the connection was closed. "
        "nginx-rtmp only closes the connection when it stops pushing a stream to another server.",
        "No action is needed. This is a regular end.",
    ),
    Cause(
        "refused",
        "The server sent an error, or closed the connection directly after a request without a response.",
        "Read CMD_REFUSED, CMD_STREAM_NAME, CMD_STREAM_ID or SESSION_BAD_NAME if present, otherwise the log of the "
        "server. Check the application, the stream key and the address.",
    ),
    Cause(
        "idle_timeout",
        "The sender of the media sent nothing for 5 s or more, or a publisher no media for 3 s or more, and the other "
        "side closed the connection.",
        "Find out why the sender stopped: check its source, its machine and the path to it. Raise the timeout only if "
        "the stream may pause.",
    ),
    Cause(
        "peer_vanished",
        "During a stream, the client closed or one side reset the connection without a teardown. The program was "
        "killed or crashed, or the machine or the link failed. It is also the cause if neither side closed, but one "
        "side only retransmitted for 3 s or more and the other sent no packet at all for 5 s or more.",
        "Read the log of the side that closed, at that time. For a reset, check firewalls and proxies on the path. If "
        "neither side closed, capture at the other end too and check the path between them.",
    ),
    Cause(
        "ack_stall",
        "The sender used up its window, received no Acknowledgement and stopped; then the connection was closed.",
        "Fix the receiver: it must send an Acknowledgement for every window. FLOW_ACK_STARVED has the numbers.",
    ),
    Cause(
        "protocol_error",
        "One side closed the connection after the other side had violated the protocol.",
        "Fix the sender. The errors reported before the end say what is wrong.",
    ),
    Cause(
        "capture_ended",
        "The connection was still open when the capture ended.",
        "Capture for longer, or add the next file of the recording, to see the end.",
    ),
    Cause(
        "unknown",
        "The connection was closed without a teardown, and the capture does not show why.",
        "Read the log of the side that closed. If data is missing, capture again without packet loss.",
    ),
)

ENTRIES = (
    Entry(
        "TIME_BACKWARDS",
        "Decoding timestamps go backwards",
        f"{SPEC} 5.3.1.2.1",
        when="A coded frame has an earlier timestamp than the previous frame of its track.",
        why="Players drop such frames or stall, and recorders write files in which seeking fails.",
        remedy="Sort frames by decoding timestamp before sending. Publish again after the encoder restarts.",
        generator=PUBLISH,
    ),
    Entry(
        "TIME_JUMP",
        "Timestamp jump",
        None,
        when="Between two frames of a track, the timestamps advance more than 1 s further than the arrival times, "
        "and by more than three median frame intervals (three times the longest if the frame rate varies).",
        why="Players wait or drop the connection, and recordings get a gap.",
        remedy="Use one clock for the whole stream. Look for a source that was switched or a clock that was adjusted.",
        generator=PUBLISH,
    ),
    Entry(
        "TIME_EXT_BREAK",
        "Expected failure at 4 h 39 min",
        f"{SPEC} 5.3.1.3",
        when="The sender omitted the extended timestamp from continuation chunks (warning), or it is a software "
        "version that is known to omit it (info).",
        why="From 16,777,215 ms (4 h 39 min) on, every timestamp needs the extended field. A peer that expects it in "
        "fmt 3 chunks loses synchronisation.",
        remedy="Update the sender (OBS Studio 30.1 or later), or reconnect before 4 h 39 min.",
        cases="obsproject/obs-studio#10097, bluenviron/mediamtx#2808",
        generator=PUBLISH,
        also=("info",),
    ),
    Entry(
        "TIME_WRAP",
        "Timestamp field boundary crossed",
        f"{SPEC} 5.3.1.3",
        when="The timestamps of a track passed 2^24 ms (4 h 39 min), 2^31 ms (24.8 days) or 2^32 ms (49.7 days) "
        "and continued.",
        why="Many implementations fail at these values. This stream did not.",
        remedy=NO_ACTION,
        generator=PUBLISH,
    ),
    Entry(
        "TIME_SKEW",
        "Audio and video drift apart",
        None,
        when="For a minute or more, the difference between audio and video timestamps grows steadily by more than "
        "20 ms per minute, and by more than 100 ms in total.",
        why="Lip sync is lost; after an hour the offset is more than a second.",
        remedy="Take both timestamps from one clock. OBS: set the sample rate of the audio device in Settings, Audio. "
        "FFmpeg: resample the audio (-af aresample=async=1). If both are right, replace the capture device.",
        generator=PUBLISH,
    ),
    Entry(
        "TIME_STALL",
        "Media stalled",
        None,
        when="Between the first and the last frame of a stream, no coded frame arrived for at least 1 s and more "
        "than three median frame intervals (three times the longest if the frame rate varies). Pauses that the client "
        "requested, pauses for which enough media was delivered ahead of time, and frames after the receiver closed "
        "are exempt. It is also reported if audio or video that arrived regularly stops for 2 s or more while the "
        "other continues.",
        why="Playback freezes. The detail says what was seen. The receiver was too slow if the TCP window was zero "
        "for most of the stall. Delivery stalled if a burst of frames followed: in the network if TCP "
        "retransmitted during the stall, otherwise at the sender or on the way to the point of capture. The encoder "
        "produced nothing if the timestamps jumped by the length of the stall. If the stream continued where it had "
        "stopped, the sender paused, or the link to the point of capture is slower than the stream.",
        remedy="Network: look for packet loss on the path. Sender or receiver: check its disk and CPU load. Encoder: "
        "check its source.",
        wireshark="rtmpt.header.typeid == 9",
        generator=PUBLISH,
    ),
    Entry(
        "TIME_SLOW",
        "Media slower than real time",
        None,
        when="For 5 s or more, coded frames arrive at less than 0.95 x real time, and at the end they are more than "
        "1 s and three frame intervals behind the best frame before. If a single stall explains half of the delay, "
        "TIME_STALL is reported instead. Pauses, seeks, jumps of timestamps and frames after the receiver closed are "
        "exempt, and so are files while the player has media in advance.",
        why="Players use up their buffers and stop. A zero window for half of the delay means that the receiver does "
        "not read fast enough. Frames that arrive in bursts waited in a queue; if TCP also retransmitted, the network "
        "is too slow. Otherwise the sender (an overloaded encoder) or the link to the point of capture is too slow.",
        remedy="Compare the encoded bitrate with the received one. Lower the bitrate if the link is the limit; lower "
        "the resolution or choose a faster preset if the encoder is too slow.",
        generator=PUBLISH,
    ),
    Entry(
        "TIME_FAST",
        "Media faster than real time",
        None,
        when="The media of a publisher is more than 5 s ahead of the wall clock, counted from its first frame. For a "
        "player it is counted from the end of the initial burst, and files are exempt.",
        why="Servers buffer or drop what comes too early, and live players see the stream in fast forward.",
        remedy="Send frames at their timestamps (FFmpeg: -re before -i).",
        cases="ffmpeg publishes files as fast as the server reads them unless -re is given.",
        generator=PUBLISH,
    ),
    Entry(
        "TIME_PTS_BEFORE_DTS",
        "Presentation time before decoding time",
        f"{FLV} E.4.3.1",
        when="The composition time of a frame is negative.",
        why="Strict players drop the frame, and muxers refuse it.",
        remedy="Add the absolute value of the lowest composition time to all composition times.",
        generator=PUBLISH,
    ),
    Entry(
        "SESSION_END",
        "End of the connection",
        None,
        when="Always reported, once per connection. The detail says who closed it, whether with FIN or RST, and "
        "why, or that it was still open when the capture ended.",
        why="It is the first thing to check when a stream has stopped.",
        remedy=NO_ACTION,
        wireshark="tcp.flags.fin == 1 || tcp.flags.reset == 1",
        causes=CLOSE_CAUSES,
    ),
    Entry(
        "SESSION_PERIODIC",
        "Stream drops periodically",
        None,
        when="Three or more consecutive attempts to publish or play one stream name had nearly the same duration. The "
        "detail gives the duration, the number of attempts and the side that ended them.",
        why="Equal durations point to a timeout: of a proxy, a load balancer, a licence or a session limit.",
        remedy="Look for a timeout of this duration on the side that ends the stream and on every device in between.",
    ),
    Entry(
        "SESSION_NO_MEDIA",
        "Stream without media",
        None,
        when="The server accepted publish or play, but no coded frame was sent for a second or more, or before one "
        "side closed. Codec configurations do not count as frames.",
        why="The publisher has no source, the player waits for a stream without a publisher, or the server "
        "disconnected the client.",
        remedy="If the server closed the connection, read its log (stream key, on_publish hook). Otherwise start the "
        "source, and check that publisher and player use the same application and stream name.",
        cases="nginx-rtmp answers NetStream.Publish.Start to a publisher that it denies, and then closes.",
        generator=PUBLISH,
    ),
    Entry(
        "SESSION_BAD_NAME",
        "Stream name already in use",
        f"{SPEC} 7.2.2.6",
        when="A client publishes a stream name that another connection is publishing. The detail names that connection "
        "if it was captured.",
        why="The server refuses the new publisher or disconnects the first one.",
        remedy="Give each publisher its own stream name, or wait until the server has closed the old connection.",
        cases="An encoder that reconnects before the server has timed out its old connection conflicts with itself.",
        generator=PUBLISH,
    ),
)
