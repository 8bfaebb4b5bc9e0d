"""Limits the work that the messages of one upstream cause, over all its connections and streams.

    bytes of a stream ──intake──▶ lines and events, unread ──forward──▶ decoded notifications ──▶ calls, lists, clients
                                                           └─requests─▶ questions of the upstream, or a refusal at once

A stream that needs little never waits for the others: each has a small rate of its own, and only what exceeds it shares the
rate of the upstream. Responses cost nothing beyond their lines, so a flood delays the result of its own call alone.
"""

from dataclasses import dataclass, field
from typing import Final

from mcp_types import RequestId

from ringback.domain import jsontext
from ringback.domain.clock import Clock
from ringback.domain.rate_limiter import RateLimit, TokenBucket
from ringback.loop_turns import LoopTurns

INTAKE_LIMIT: Final = RateLimit(per_second=3_000, burst=60_000)
"""Units of work for reading the streams of one upstream. A line is one unit, a notification has `EVENT_UNITS` and its bytes.
A unit takes three to five microseconds (measured). With what is forwarded of it, a flood takes 100 ms of CPU a second once its
burst is used up, and 325 at 20,000 units; a result behind 100,000 lines of progress comes after 13 s."""
STREAM_INTAKE_LIMIT: Final = RateLimit(per_second=200, burst=2_000)
"""Units for which a stream does not wait."""
EVENT_UNITS: Final = 4
REFUSAL_UNITS: Final = 8
"""For a request that is refused: decoded, and answered with an error on the input of a child."""
POSTED_REFUSAL_UNITS: Final = 100
"""The same for an HTTP upstream, with a request of ours for each: half a millisecond (measured)."""
BYTES_PER_UNIT: Final = 512
STREAM_FORWARD_LIMIT: Final = RateLimit(per_second=20, burst=200)
"""Notifications of one stream that are decoded. A tool that reports each percent stays below."""
FORWARD_LIMIT: Final = RateLimit(per_second=40, burst=400)
"""The same for all streams of an upstream: 15 ms a second (measured: 0.37 ms each)."""
FORWARD_SHARE: Final = RateLimit(per_second=1, burst=20)
"""Notifications of one stream that do not wait for other streams."""
REQUEST_LIMIT: Final = RateLimit(per_second=5, burst=128)
"""Requests of an upstream: questions, and those that are refused."""
REQUEST_SHARE: Final = RateLimit(per_second=0.2, burst=4)
"""Requests of one stream that do not wait for other streams."""
SLICE_BYTES: Final = 16 * 1024
SLICE_LINES: Final = 32
"""What of a stream is read in one turn of the event loop: half a millisecond of CPU time at most."""
SLICES_IN_TURN: Final = 1
"""Slices of all streams of an upstream that are read in one turn. Five streams that flood at once had turns of 20 ms."""
PAUSE_FACTOR: Final = 9.0
"""While the burst of `INTAKE_LIMIT` lasts and the loop has other work, the streams of an upstream wait for nine times as long
as that work takes. A call has turns of half a millisecond, and with a slice in each of them it took three times as long."""


class MessageFlow:
    """The limits of one upstream. Waits use `clock`."""

    def __init__(self, *, clock: Clock) -> None:
        self.clock = clock
        self.intake = TokenBucket(INTAKE_LIMIT)
        self.forwarded = TokenBucket(FORWARD_LIMIT)
        self.requests = TokenBucket(REQUEST_LIMIT)
        self.turns = LoopTurns(SLICES_IN_TURN, pause_factor=PAUSE_FACTOR)

    def open_stream(self) -> "StreamFlow":
        return StreamFlow(self)


@dataclass(frozen=True, slots=True)
class SharedLimit:
    """A share of its own, and beyond it the limit of all streams. `own` limits both."""

    shared: TokenBucket
    share: TokenBucket
    own: TokenBucket | None = None

    def wait_seconds(self, now: float) -> float:
        wait = min(self.share.wait_seconds(now), self.shared.wait_seconds(now))
        return wait if self.own is None else max(wait, self.own.wait_seconds(now))

    def try_acquire(self, now: float) -> bool:
        if self.wait_seconds(now) > 0:
            return False
        self.reserve(now)
        return True

    def reserve(self, now: float) -> float:
        """Consume a permit in any case. The caller waits for the seconds that are returned before it uses the permit."""
        wait = self.wait_seconds(now)
        self.share.try_acquire(now)
        self.shared.consume_permit(now)
        if self.own is not None:
            self.own.consume_permit(now)
        return wait


@dataclass(slots=True)
class StreamFlow:
    """One response stream, or the output of one child."""

    flow: MessageFlow
    _intake: TokenBucket = field(default_factory=lambda: TokenBucket(STREAM_INTAKE_LIMIT))
    forward_limit: SharedLimit = field(init=False)
    """Of notifications that are decoded and passed on."""
    _request_limit: SharedLimit = field(init=False)

    def __post_init__(self) -> None:
        self.forward_limit = SharedLimit(
            self.flow.forwarded, TokenBucket(FORWARD_SHARE), TokenBucket(STREAM_FORWARD_LIMIT)
        )
        self._request_limit = SharedLimit(self.flow.requests, TokenBucket(REQUEST_SHARE))

    def now(self) -> float:
        return self.flow.clock.monotonic()

    async def take_turn(self) -> None:
        """Wait for a turn of the event loop in which the next slice may be read."""
        await self.flow.turns.wait(id(self))

    async def take_in(self, units: int) -> bool:
        """Consume units of work; the caller has done the work. Returns whether it had to wait."""
        now = self.now()
        own_wait, wait = self._intake.wait_seconds(now), self.flow.intake.wait_seconds(now)
        self._intake.consume_permit(now, units)
        self.flow.intake.consume_permit(now, units)
        if min(own_wait, wait) <= 0:
            return False
        await self.flow.clock.sleep(wait)
        return True

    async def take_in_event(self, size: int) -> bool:
        """The same for a notification of `size` bytes."""
        return await self.take_in(EVENT_UNITS + size // BYTES_PER_UNIT)

    async def wait_for_forward(self) -> bool:
        wait = self.forward_limit.reserve(self.now())
        if wait > 0:
            await self.flow.clock.sleep(wait)
        return wait > 0

    def try_request(self) -> bool:
        """Whether a request is passed on. Otherwise it is refused at once, because a response may be behind it."""
        return self._request_limit.try_acquire(self.now())

    async def take_in_refusal(self, *, is_posted: bool) -> bool:
        """The same as `take_in`, for a request that was refused."""
        return await self.take_in(POSTED_REFUSAL_UNITS if is_posted else REFUSAL_UNITS)


def encode_refusal(request_id: RequestId) -> bytes:
    """The JSON-RPC error for a request above the limit."""
    error = {"code": -32000, "message": "Too many requests at once, so this one was refused. Ask again later."}
    return jsontext.dumps({"jsonrpc": "2.0", "id": request_id, "error": error})
