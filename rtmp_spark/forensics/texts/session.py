"""TIME_*, SESSION_*: times and what became of sessions."""

from __future__ import annotations

from rtmp_spark.forensics.texts.entry import FLV, PUBLISH, SPEC, Cause, Entry

# The words of connections.close_cause.
CLOSE_CAUSES = (
    Cause(
        "teardown",
        "A side said goodbye (deleteStream, FCUnpublish, Stream EOF, Play.Stop) and then closed.",
        "Nothing: this is how it should end.",
    ),
    Cause(
        "refused",
        "The server said no, or closed at once after a request without a word.",
        "Read CMD_REFUSED or SESSION_BAD_NAME beside it, else the server's log; check application, stream key and "
        "address.",
    ),
    Cause(
        "idle_timeout",
        "The sender of media was silent for 5 s or more, and the other side closed.",
        "Find out why it fell silent: its source, its machine, the path to it. Raise the timeout only if it may rest.",
    ),
    Cause(
        "peer_vanished",
        "In the middle of a stream the client closed, or a side reset the connection, without a goodbye: a program "
        "that was killed or crashed, a machine or a line that went away. Without a close: bytes were only sent again, "
        "for 3 s or more, and for 5 s or more not even TCP answered.",
        "Look at the log of the side that closed, at that time; for a reset also at firewalls and proxies between. "
        "Without a close look at the way between them, recording at its other end too.",
    ),
    Cause(
        "ack_stall",
        "The sender had used up its window, got no Acknowledgement, and stopped; then the connection closed.",
        "Mend the receiver: it must acknowledge each window. FLOW_ACK_STARVED has the numbers.",
    ),
    Cause(
        "protocol_error",
        "A side closed after the other one had sent what breaks the protocol.",
        "Mend the sender: the errors found before the end say what was wrong.",
    ),
    Cause(
        "capture_ended",
        "The connection was still open when the recording ended.",
        "Record longer, or add the next file, to see the end.",
    ),
    Cause(
        "unknown",
        "It was closed without a goodbye, and nothing in the recording tells why.",
        "Look at the log of the side that closed; with bytes missing, record again without losses.",
    ),
)

ENTRIES = (
    Entry(
        "TIME_BACKWARDS",
        "Decoding times go back",
        f"{SPEC} 5.3.1.2.1",
        "A coded frame of a track has an earlier time than the one before it.",
        "Players drop such frames or stall; recorders write files that cannot be sought.",
        "Sort by decoding time before sending; after a restart of the encoder publish anew.",
        generator=PUBLISH,
    ),
    Entry(
        "TIME_JUMP",
        "Timestamps leap",
        None,
        "Media time leaps by more than 1 s against arrival, and more than 3 usual steps.",
        "Players wait through the leap or drop the connection; recordings have a hole.",
        "Keep one clock for the whole stream; look for a source that was switched or a clock that was set.",
        generator=PUBLISH,
    ),
    Entry(
        "TIME_EXT_BREAK",
        "This sender will lose its peer at 4 h 39 min",
        f"{SPEC} 5.3.1.3",
        "The extended timestamp was seen left out of continuations (warning), or the software is known to leave it out "
        "(info).",
        "At 16,777,215 ms every timestamp needs the extended field; a peer that expects it on fmt 3 chunks loses sync.",
        "Update the sender (OBS Studio 30.1 or later), or reconnect before 4 h 39 min.",
        "obsproject/obs-studio#10097, bluenviron/mediamtx#2808",
        generator=PUBLISH,
        also=("info",),
    ),
    Entry(
        "TIME_WRAP",
        "Times crossed a boundary of their field",
        f"{SPEC} 5.3.1.3",
        "A track's times passed 2^24 ms (4 h 39 min), 2^31 ms (24.8 days) or 2^32 ms (49.7 days), and went on.",
        "Here many implementations break; this one did not.",
        "None needed.",
        generator=PUBLISH,
    ),
    Entry(
        "TIME_SKEW",
        "Sound and picture drift apart",
        None,
        "Steadily by more than 20 ms a minute over a minute or more, and 100 ms in all.",
        "Lips and voice part; after an hour it is seconds.",
        "Drive both tracks from one clock: resample the sound (FFmpeg: -af aresample=async=1) or mend the "
        "capture clock.",
        generator=PUBLISH,
    ),
    Entry(
        "TIME_STALL",
        "No frame for a second or more",
        None,
        "Between the first and the last frame of a stream no coded frame came for 1 s and three usual steps; it was "
        "not paused, and not delivered further ahead than that. A window that was closed for most of it: the receiver "
        "took nothing. A burst after it means that delivery stalled: the network, when TCP sent again inside, else "
        "the sender. Media time that leaps with it: the encoder made nothing. Neither: its clock stood still, or, for "
        "a player, the way to it is slower than the stream. Also when one of picture and sound that came steadily "
        "stops for 2 s or more while the other goes on.",
        "Viewers see the picture freeze.",
        "Network: look at the loss on the path. Sender or receiver: look at its disk and CPU. Encoder: look at its "
        "source.",
        wireshark="rtmpt.header.typeid == 9",
        generator=PUBLISH,
    ),
    Entry(
        "TIME_PTS_BEFORE_DTS",
        "A frame is to be shown before it is decoded",
        f"{FLV} E.4.3.1",
        "The composition time is negative.",
        "Strict players drop the frame; muxers refuse it.",
        "Shift all composition times up by the largest negative one.",
        generator=PUBLISH,
    ),
    Entry(
        "SESSION_END",
        "How the connection ended",
        None,
        "Always told: who closed it, with FIN or RST, after a teardown, a refusal, a timeout, or not at all.",
        "The first thing one wants to know about a stream that stopped.",
        "None needed.",
        wireshark="tcp.flags.fin == 1 || tcp.flags.reset == 1",
        causes=CLOSE_CAUSES,
    ),
    Entry(
        "SESSION_PERIODIC",
        "The stream ends again and again after the same time",
        None,
        "Three or more attempts of one name in a row lasted nearly equally long; the detail says how long, "
        "how often and "
        "who ended them.",
        "The signature of a timeout: a proxy, a load balancer, a licence or a session limit.",
        "Look for a setting of just that many seconds on the side that ends it and on everything between.",
    ),
    Entry(
        "SESSION_NO_MEDIA",
        "Published or played, and no media came",
        None,
        "The command was accepted, and not one frame was sent in a second or more (configurations are none), or "
        "nothing at all before a side closed.",
        "The publisher has no source, the player waits for a stream that nobody publishes, or the server threw it out.",
        "Where the server closed, its log says why (a key, an on_publish hook). Else start the source, and check that "
        "publisher and player use the same application and name.",
        "nginx-rtmp answers NetStream.Publish.Start to a publisher that it denies, and closes.",
        generator=PUBLISH,
    ),
    Entry(
        "SESSION_BAD_NAME",
        "A second publisher of one name",
        f"{SPEC} 7.2.2.6",
        "Somebody publishes under a name that is taken; the detail says which connection holds it.",
        "The server refuses the newcomer or throws the first one out.",
        "Give each publisher its own name, or wait until the server has noticed that the old connection is dead.",
        "Encoders that reconnect faster than the server times out meet themselves.",
        generator=PUBLISH,
    ),
)
