"""Every threshold that decides whether a rule applies, with its reason.

They are here and not in codec/limits.py because they belong to rules: a limit bounds memory and may be changed without
changing what a finding means, a threshold is part of the meaning of its rule and appears in its text in the catalogue.
"""

from __future__ import annotations

from typing import Final

# ==== TIME_STALL ===========================================================================================

STALL_US: Final = 1_000_000  # viewers notice; players buffer about this much
STALL_STEPS: Final = 3  # and this many usual frame intervals, so that slides at a frame every 2 s are not stalls
TRACK_STALL_US: Final = 2_000_000  # one track alone: longer, because audio and video are interleaved unevenly
TRACK_STALL_STEPS: Final = 10  # and this many median frame intervals
REGULAR_STEPS: Final = 20  # frame intervals before a track counts as regular, ...
REGULAR_UNEVEN_SHARE: Final = 0.02  # ... and the share of them that may be longer than ...
REGULAR_UNEVEN_STEPS: Final = 3  # ... this many median intervals: slides and audio with pauses are not regular
BUFFERED_MS: Final = 5000  # media delivered this far ahead is a file; its pauses do not starve a player
CATCH_UP_US: Final = 2_000_000  # a burst within this time after a stall shows that delivery stalled
STALL_CAUSE_SHARE: Final = 0.5  # part of a stall that a jump, a burst or a zero window must cover to be its cause
ON_TIME_US: Final = 500_000  # a frame delayed by less did not wait for the end of a stall

VARIABLE_SHARE: Final = 0.1  # more frame intervals than this that differ from the median by more than ...
VARIABLE_STEP: Final = (
    0.5  # ... this part of it: a variable frame rate, of which the longest interval counts, not the median
)
VARIABLE_STEPS: Final = (
    20  # intervals needed to know the longest of a variable frame rate, or the median of one below ...
)
SLOW_STEP_MS: Final = 200  # ... 5 frames per second

# ==== TIME_SLOW, TIME_FAST =================================================================================

SLOW_PACE: Final = 0.95  # media time over wall time; clocks of encoders are wrong by far less
SLOW_WALL_US: Final = 5_000_000  # shorter parts do not show a pace
LATE_US: Final = 1_000_000  # behind at the end; players buffer about this much
LATE_STEPS: Final = 3  # and this many usual frame intervals
LATE_STALL_SHARE: Final = 0.5  # a single stall that explains this part is reported as TIME_STALL
SLOW_CAUSE_SHARE: Final = 0.5  # part of the delay that zero windows must cover to be its cause
HURRIED: Final = 2  # a frame that arrives this many times sooner than its timestamp says had to wait before, and ...
HURRIED_SHARE: Final = 0.2  # ... this share of them shows that frames waited in a queue
FAST_US: Final = 5_000_000  # ahead; encoders and servers send a GOP or a buffer of less in advance
BURST_QUIET_US: Final = 1_000_000  # the initial burst of a play is over if for this time ...
BURST_FALL_US: Final = 100_000  # ... the offset of its frames fell by no more than this

# ==== TCP_LOSS =============================================================================================

LOSS_SEGMENTS: Final = 3  # lost segments in a direction; fewer say nothing about a rate
LOSS_PACKETS: Final = 100  # data packets in the direction, for the same reason
LOSS_INFO: Final = 0.005  # share of the bytes that TCP repairs without a delay that viewers notice
LOSS_WARNING: Final = 0.02  # share from which the throughput of TCP falls below common bitrates
LOSS_SECOND: Final = 0.1  # share in one second of at least LOSS_SECOND_BYTES (codec/limits.py)

# ==== TIME_JUMP, TIME_WRAP =================================================================================

JUMP_MS: Final = 1000  # ahead of arrival; smaller jumps come from buffering
JUMP_STEPS: Final = 3  # and this many usual frame intervals
JUMP_KNOWN_STEPS: Final = 3  # frame intervals needed to know the median
WRAP_STEP_MS: Final = 60_000  # a longer step across a field boundary is a jump, not a wrap

# ==== TIME_SKEW ============================================================================================

SKEW_MS_PER_MINUTE: Final = 20.0  # clocks of sound cards differ by up to 100 ppm = 6 ms per minute
SKEW_MINUTES: Final = 1.0  # shorter streams do not show a slope above the noise of frame durations
SKEW_MS: Final = 100.0  # in total; viewers notice offsets of about 45 to 125 ms (ITU-R BT.1359)
SKEW_STRETCHES: Final = 10  # averages needed for a slope

# ==== MEDIA_GOP_LONG =======================================================================================

GOP_INFO_MS: Final = 4000  # twice the 2 s that streaming services recommend
GOP_WARNING_MS: Final = 10_000  # HLS segments become longer than players expect

# ==== MEDIA_DECLARED, MEDIA_TRACK_ABSENT ===================================================================

DECLARED_FPS_MEDIA_MS: Final = 5000  # media time needed to measure a frame rate
DECLARED_FPS_SHARE: Final = 0.1  # difference of the frame rate that is a contradiction
ABSENT_MEDIA_MS: Final = 2000  # media time of the other track; encoders start their tracks within this time

# ==== FLOW_ACK_*, CTRL_PING_UNANSWERED =====================================================================

STARVED_WINDOWS: Final = 2  # windows without an Acknowledgement; one may be in flight
STOPPED_US: Final = 1_000_000  # a sender that pauses this long after these windows has stopped for lack of them
PING_US: Final = 1_000_000  # time that the receiver of a ping has to respond

# ==== CMD_NO_RESPONSE, SESSION_NO_MEDIA ====================================================================

RESPONSE_LIMIT_US: Final = 5_000_000  # a request that needs an answer should get it within this time
NO_MEDIA_US: Final = 1_000_000  # a stream that was accepted and stays empty for this long is reported

# ==== findings that another finding explains ===============================================================

REFUSED_AFTER_ERROR_US: Final = 1_000_000  # a refusal this soon after an error answers it
RESET_AFTER_ERROR_US: Final = 5_000_000  # a reset this soon after an error answers it

# ==== TCP_ZERO_WINDOW ======================================================================================

ZERO_WINDOW_US: Final = 200_000  # in total; shorter ones are usual when a burst meets a busy receiver

# ==== SESSION_PERIODIC, SESSION_BAD_NAME, CMD_AUTH_ROUND ===================================================

PERIODIC_ATTEMPTS: Final = 3  # attempts of equal duration; two can be a coincidence
PERIODIC_SECONDS: Final = 2.0  # shorter attempts are reconnect loops after a refusal
PERIODIC_SPREAD: Final = 0.05  # of the median duration, ...
PERIODIC_SPREAD_SECONDS: Final = 1.0  # ... or this, whichever is more: timers often have a resolution of 1 s
SAME_MEDIA_US: Final = 250_000  # difference of start and end if one stream is captured on both sides of a router
AUTH_ROUND_US: Final = 30_000_000  # the next connection of an authentication follows within this time

# ==== deliveries: which played stream is which published one ===============================================

COMMON_FRAMES: Final = 3  # distinct frames that both streams must have
COMMON_SHARE: Final = 0.2  # and this share of the played frames
SHIFT_MS: Final = 1000  # a frame with the same bytes whose timestamp is off by more is another frame
NEAR_FRAMES: Final = 4  # frames with the same bytes compared on either side of the expected timestamp
EARLY_US: Final = 1_000_000  # a frame that arrives this long before it was published is another one; clocks differ less
BEHIND_US: Final = 2_000_000  # or this long after a later frame of its track: TCP and servers keep the order
FIRST_LATENCIES: Final = 25  # frames whose latency is typical: later a slow link has filled its queues
IN_FLIGHT_MS: Final = 500.0  # frames published this shortly before the end, or twice the latency, may be in flight
CACHE_US: Final = 60_000_000  # how far back a server may start a player
REPEAT_US: Final = 1_000_000  # media time from which the pace of a play tells a cache from a second publisher

# ==== paths: one connection captured at two sensors ========================================================

PATH_CLOCK_US: Final = 60_000_000  # clocks differ by less; TCP does not use the same ports again within this time
PATH_COVERED_US: Final = (
    1_000_000  # two recordings of one connection that begin or end further apart cannot be subtracted
)
PATH_MESSAGES: Final = 3  # messages that both must have
PATH_SHARE: Final = 0.5  # and this share of the messages of the shorter one
PATH_TRANSLATED_SHARE: Final = 0.9  # of the longer one, where a router changed the addresses
