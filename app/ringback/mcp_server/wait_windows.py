"""How long the response to a tool call is held.

For a tool of an upstream, the first of these that is set:

    ?wait=SECONDS            in the URL of the endpoint: only the client knows how long it waits
    inline_wait_seconds      of the tool, and then of the upstream, in the configuration
    RINGBACK_INLINE_WAIT_SECONDS

`ringback_wait_for_call` waits as long as its caller asks, or else as `?wait=` says, or the setting; 4 s if that is no wait. A
client that supports tasks gets its task after the grace time. Then each window is shortened to

    RINGBACK_WAIT_SECONDS_MAX, which bounds every held response, and
    less than the shortest wait that this client gave up (`client_timeouts`), but to no less than `?wait=`, or what the
    configuration of the tool or the upstream says: both were chosen for this client or this tool

Progress that was sent to a client which then waits longer (`known_clients`) begins its window anew, up to
RINGBACK_WAIT_SECONDS_MAX; but not for a client that gave up before.
"""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import anyio

from ringback.domain.clock import Clock
from ringback.domain.errors import InvalidRequest
from ringback.domain.ids import CallId
from ringback.mcp_server.call_options import read_client_session_id
from ringback.mcp_server.client_timeouts import ClientKey, ClientTimeouts, shorten_window
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.known_clients import get_known_client
from ringback.mcp_server.request_context import RequestContext

POLL_SECONDS_MIN: Final = 1.0
"""A shorter wait of tool calls is none, and says nothing about how long a client waits for a tool that waits."""
POLL_SECONDS_DEFAULT: Final = 4.0
"""The wait of a built-in tool whose caller asks for none in particular, if tool calls do not wait. As the setting's default."""
_CLIENT_NAME_LENGTH_MAX: Final = 128
"""Longer than the name and the version of every client; a client may send any text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitWindow:
    seconds: float
    seconds_max: float
    """The longest time that progress extends the window to; the same as `seconds` if it does not."""


class WaitDeadline:
    """The end of one wait in its window."""

    def __init__(self, window: WaitWindow, clock: Clock) -> None:
        self._window = window
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Begin the wait now."""
        now = self._clock.monotonic()
        self._ends_at, self._ends_at_max = now + self._window.seconds, now + self._window.seconds_max

    def extend(self) -> None:
        """Begin the window anew, up to its maximum: progress was sent to a client that may wait longer then."""
        extended = self._clock.monotonic() + self._window.seconds
        self._ends_at = max(self._ends_at, min(extended, self._ends_at_max))

    def count_seconds_left(self) -> float:
        """0 once the wait is over."""
        return max(self._ends_at - self._clock.monotonic(), 0.0)


class WaitWindows:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._config = gateway.config
        self._client_timeouts = ClientTimeouts()
        self._waiting = set[CallId | None]()
        """The calls of legacy requests whose clients wait and have not lost their streams, as far as known."""

    def choose_tool_window(self, context: RequestContext, upstream: str, tool: str) -> WaitWindow:
        """The window of a call to an upstream's tool."""
        chosen_seconds = context.read_endpoint_wait_seconds()
        if chosen_seconds is None:
            chosen_seconds = self._gateway.catalog.get_tool_config(upstream, tool).inline_wait_seconds
        seconds = self._config.inline_wait_seconds if chosen_seconds is None else chosen_seconds
        limited_seconds = self._limit_window(context, seconds, chosen_seconds=chosen_seconds)
        seconds_max = self._config.wait_seconds_max if self._waits_for_progress(context) else limited_seconds
        return WaitWindow(seconds=limited_seconds, seconds_max=seconds_max)

    def choose_grace_window(self, context: RequestContext, grace_seconds: float) -> WaitWindow:
        """The window of a client that gets a task after it."""
        seconds = self._limit_window(context, grace_seconds, chosen_seconds=context.read_endpoint_wait_seconds())
        return WaitWindow(seconds=seconds, seconds_max=seconds)

    def choose_poll_seconds(self, context: RequestContext, requested_seconds: float | None) -> float:
        """The wait of a built-in tool; None if its caller asks for none in particular."""
        seconds, endpoint_seconds = requested_seconds, context.read_endpoint_wait_seconds()
        if seconds is None:
            seconds = self._config.inline_wait_seconds if endpoint_seconds is None else endpoint_seconds
            seconds = seconds if seconds >= POLL_SECONDS_MIN else POLL_SECONDS_DEFAULT
        return self._limit_window(context, seconds, chosen_seconds=endpoint_seconds)

    @contextmanager
    def observe_wait(self, context: RequestContext) -> Generator[None]:
        """Record how long the client waited, and whether it disconnected or cancelled its request in this context."""
        started_at = self._gateway.clock.monotonic()
        ended_at: float | None = None
        call_id = None if context.stream_request is None else context.stream_request.call_id
        self._waiting.add(call_id)
        try:
            yield
        except anyio.get_cancelled_exc_class():
            ended_at = self._gateway.clock.monotonic()
            raise
        finally:
            if context.request_closed_at is not None:
                ended_at = context.request_closed_at
            has_come_back = call_id is not None and call_id not in self._waiting
            self._waiting.discard(call_id)
            if not has_come_back and not self._gateway.lifecycle.shutdown_event.is_set():
                self._record_wait(context, started_at, given_up_at=ended_at)

    def forget_give_up(self, context: RequestContext) -> None:
        """Forget what looked as if the client gave up: it lost the stream of this request, and waits for the response again."""
        self._client_timeouts.forget_client(_get_client_key(context))
        if context.stream_request is not None:
            self._waiting.discard(context.stream_request.call_id)

    def _record_wait(self, context: RequestContext, started_at: float, *, given_up_at: float | None) -> None:
        if given_up_at is not None:
            self._client_timeouts.record_give_up(_get_client_key(context), after_seconds=given_up_at - started_at)
        elif self._client_timeouts:
            self._client_timeouts.record_wait(
                _get_client_key(context), seconds=self._gateway.clock.monotonic() - started_at
            )

    def _limit_window(self, context: RequestContext, seconds: float, *, chosen_seconds: float | None) -> float:
        window_seconds = min(seconds, self._config.wait_seconds_max)
        shortened_seconds = shorten_window(window_seconds, self._get_shortest_wait(context))
        return max(shortened_seconds, min(window_seconds, chosen_seconds or 0.0))

    def _get_shortest_wait(self, context: RequestContext) -> float | None:
        return self._client_timeouts.get_shortest_wait(_get_client_key(context)) if self._client_timeouts else None

    def _waits_for_progress(self, context: RequestContext) -> bool:
        return (
            context.meta.get("progress_token") is not None
            and get_known_client(context.client_name).progress_restarts_timeout
            and self._get_shortest_wait(context) is None
        )


def _get_client_key(context: RequestContext) -> ClientKey | None:
    """A legacy session; or the modern requests of one principal, client and client session.

    None for a modern request without a client session: one agent's haste must not shorten the waits of others.
    """
    if not context.is_modern:
        return (context.mcp_session_id,)
    session_id = _read_client_session_id(context)
    if not session_id:
        return None
    return (
        context.caller.principal,
        session_id,
        context.client_name[:_CLIENT_NAME_LENGTH_MAX],
        context.client_version[:_CLIENT_NAME_LENGTH_MAX],
    )


def _read_client_session_id(context: RequestContext) -> str:
    with suppress(InvalidRequest):  # starting the call reports an invalid label
        return read_client_session_id(context) or ""
    return ""
