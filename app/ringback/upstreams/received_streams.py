"""Requests that stay open while their notifications arrive: the dispatcher puts each into the stream of its request."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol, cast

import anyio

ACKNOWLEDGE_TIMEOUT_SECONDS: Final = 5.0
"""For the acknowledgement, the first message of a stream. Without one, callers poll instead."""
QUEUED_NOTIFICATIONS_MAX: Final = 64
"""Notifications queued on one stream. Above the limit the oldest is dropped, because newer ones say more."""
_ACKNOWLEDGED_METHOD: Final = "notifications/subscriptions/acknowledged"


class ReceivedStream(Protocol):
    """The notifications of one request that stays open."""

    def put_notification(self, method: str, params: Mapping[str, Any]) -> None: ...

    def on_request_done(self, request: "asyncio.Task[dict[str, Any]]") -> None: ...

    def end(self) -> None: ...


class NotificationStream:
    """Implements `session_ports.NotificationStreamPort`: the notifications of one `subscriptions/listen` request."""

    def __init__(self) -> None:
        self._notifications: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()
        self._acknowledged: asyncio.Future[Mapping[str, Any] | None] = asyncio.get_running_loop().create_future()
        self.failure: BaseException | None = None
        """The reason of an abnormal end."""

    async def wait_acknowledged(self) -> Mapping[str, Any] | None:
        """Wait for the acknowledged filter; None if it does not arrive in time."""
        with anyio.move_on_after(ACKNOWLEDGE_TIMEOUT_SECONDS):
            return await self._acknowledged
        return None

    async def next_notification(self) -> Mapping[str, Any] | None:
        return await self._notifications.get()

    def put_notification(self, method: str, params: Mapping[str, Any]) -> None:
        if method == _ACKNOWLEDGED_METHOD:
            self._resolve_acknowledged(params.get("notifications"))
            return
        if self._notifications.qsize() >= QUEUED_NOTIFICATIONS_MAX:
            self._notifications.get_nowait()
        self._notifications.put_nowait(params)

    def on_request_done(self, request: "asyncio.Task[dict[str, Any]]") -> None:
        if not request.cancelled():
            self.failure = request.exception()
        self.end()

    def end(self) -> None:
        self._resolve_acknowledged(None)
        self._notifications.put_nowait(None)

    def _resolve_acknowledged(self, acknowledged_filter: Any) -> None:
        if not self._acknowledged.done():
            self._acknowledged.set_result(
                cast("dict[str, Any]", acknowledged_filter) if isinstance(acknowledged_filter, dict) else None
            )
