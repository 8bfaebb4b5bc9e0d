"""Sessions of before 2026-07-28 at one endpoint: how many there may be, and how long a session's own stream stays open.

The SDK's manager knows which sessions are there and whose they are, so that is where they are counted: a count of our own would
have to follow every way in which a session ends. Two private names of the SDK's are used here and nowhere else, because nothing
public tells what they tell: `_admit_session`, where it decides on a new session, and what it keeps of the live ones.
"""

from typing import Any, Final

from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import DEFAULT_SESSION_IDLE_TIMEOUT, StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from ringback.domain.clock import Clock
from ringback.domain.errors import QuotaExceeded
from ringback.services.events import FOLLOW_SECONDS_MAX
from ringback.waits import run_with_helper

SESSIONS_MAX: Final = 10_000
"""Of one endpoint; as many idle streams as one process is built for."""
SESSIONS_PER_PRINCIPAL_MAX: Final = SESSIONS_MAX // 10
"""Of those: ten principals that never end a session have to come together before anybody else is refused."""
RETRY_AFTER_SECONDS: Final = 30
"""Nobody knows when a session will end; this is soon enough to be there in time, and seldom enough."""


class BoundedSessionManager(StreamableHTTPSessionManager):
    def __init__(self, server: Server[Any], *, request_bytes_max: int, clock: Clock) -> None:
        super().__init__(server, max_request_body_size=request_bytes_max, max_sessions=SESSIONS_MAX)
        self._clock = clock

    async def handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises `QuotaExceeded` instead of opening one session too many of its principal's."""
        response = super().handle_request(scope, receive, send)
        if scope["method"] == "GET":
            await run_with_helper(response, self._close_stream_after_limit(Headers(scope=scope).get(MCP_SESSION_ID_HEADER, "")))
        else:
            await response

    async def _close_stream_after_limit(self, session_id: str) -> None:
        """A client that comes back has its key looked at again, as a reader of the log's stream has."""
        await self._clock.sleep(FOLLOW_SECONDS_MAX)
        if transport := self._server_instances.get(session_id):
            transport.close_standalone_sse_stream()

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        """Overrides the SDK's, which calls it with nothing in between its look at the sessions and the new one."""
        if requestor is not None:
            self._require_session_quota(requestor["client_id"])
        return super()._admit_session(requestor)

    def _require_session_quota(self, principal: str) -> None:
        """Counted anew for each that would be opened: 0.4 ms when there are ten thousand (measured)."""
        open_sessions = sum(owner["client_id"] == principal for owner in self._session_owners.values())
        if open_sessions >= SESSIONS_PER_PRINCIPAL_MAX:
            raise QuotaExceeded(
                f"Your quota 'sessions' of {SESSIONS_PER_PRINCIPAL_MAX} at this endpoint is used up. Nothing was done. End what "
                "you no longer need: DELETE with its Mcp-Session-Id. Sessions end by themselves when they were idle for "
                f"{DEFAULT_SESSION_IDLE_TIMEOUT // 60} minutes.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
                quota="sessions",
                limit=SESSIONS_PER_PRINCIPAL_MAX,
            )
