"""A server of MCP Events in the process of a test, and the subscriber that asks it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

from ringback.receiver import EventSubscriber
from tests.support.clock import ManualClock
from tests.support.limits import WAIT_SECONDS

URL = "https://agent.example/callbacks?key=a%2Fb"
TTL = 600


class EventServer:
    """Grants what is asked for, challenges no receiver, and has a log of events for polls."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.log: list[dict[str, Any]] = []
        self.failures: list[Exception] = []
        self.requested = asyncio.Event()
        self.before_response: Callable[[Mapping[str, Any]], Awaitable[None]] | None = None
        self.page_size = 2

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.requests.append((method, dict(params)))
        self.requested.set()
        if self.failures:
            raise self.failures.pop(0)
        if self.before_response is not None:
            await self.before_response(params)
        match method:
            case "events/subscribe":
                return self._grant(params)
            case "events/poll":
                return self._poll(params)
            case _:
                return {}

    def sent(self, method: str) -> list[dict[str, Any]]:
        return [params for name, params in self.requests if name == method]

    async def wait_for(self, method: str, count: int) -> list[dict[str, Any]]:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.sent(method)) < count:
                self.requested.clear()
                await self.requested.wait()
        return self.sent(method)

    def _grant(self, params: Mapping[str, Any]) -> dict[str, Any]:
        ttl_ms = params.get("ttlMs", TTL * 1000)
        before = None if ttl_ms is None else (self.clock.now() + timedelta(milliseconds=ttl_ms)).isoformat()
        return {"id": f"sub_{params['name']}", "refreshBefore": before, "cursor": "0", "truncated": False}

    def _poll(self, params: Mapping[str, Any]) -> dict[str, Any]:
        start = int(params["cursor"])
        page = self.log[start : start + self.page_size]
        end = start + len(page)
        return {"events": page, "cursor": str(end), "hasMore": end < len(self.log), "truncated": False}


def make_subscriber(server: EventServer, **options: Any) -> EventSubscriber:
    return EventSubscriber(server.request, url=URL, clock=server.clock.now, sleep=server.clock.sleep, **options)
