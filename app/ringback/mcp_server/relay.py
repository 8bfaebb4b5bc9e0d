"""Progress and log messages of the upstream, relayed while the client waits for its answer.

Progress goes out only to a client that sent a token, and only upwards (a MUST of the protocol). It comes live from the
upstream; of a call that runs in another process it comes from the store, a second late. Messages are sent to clients that asked
for them: with the request on 2026-07-28, by logging/setLevel before.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, cast, get_args

from mcp_types import LOG_LEVEL_META_KEY, LoggingLevel

from ringback.domain.call import Call
from ringback.domain.upstreams import Told
from ringback.mcp_server.exchange import Exchange
from ringback.mcp_server.task_shapes import progress_params
from ringback.mcp_server.telling import tell_request

SESSIONS_MAX: Final = 10_000
"""Whose level is remembered; as many sessions as an endpoint has."""
_LEVELS: Final = frozenset(cast("tuple[str, ...]", get_args(LoggingLevel)))
_PROGRESS: Final = "notifications/progress"


class LogLevels:
    """What sessions of before 2026-07-28 asked to hear."""

    def __init__(self) -> None:
        self._levels: OrderedDict[str, str] = OrderedDict()

    def set(self, session_id: str, level: str) -> None:
        self._levels[session_id] = level
        self._levels.move_to_end(session_id)
        if len(self._levels) > SESSIONS_MAX:
            self._levels.popitem(last=False)

    def wanted(self, exchange: Exchange) -> str | None:
        level = exchange.meta.get(LOG_LEVEL_META_KEY) if exchange.modern else self._levels.get(exchange.session_id)
        return level if level in _LEVELS else None


class Relay:
    """To one client that waits."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._token = exchange.meta.get("progress_token")
        self._reached: float | None = None

    async def live(self, told: AsyncIterator[Told]) -> None:
        """Until cancelled."""
        async for each in told:
            if each.method == _PROGRESS:
                await self._progress(each.params)
            else:
                await tell_request(self._exchange.context, each.method, each.params)

    async def stored(self, call: Call) -> None:
        if call.progress is not None:
            await self._progress(progress_params(call.progress))

    async def _progress(self, params: Mapping[str, Any]) -> None:
        progress = params["progress"]
        if self._token is None or (self._reached is not None and progress <= self._reached):
            return
        self._reached = progress
        await tell_request(self._exchange.context, _PROGRESS, {**params, "progressToken": self._token})
