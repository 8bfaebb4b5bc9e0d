"""Hostile clients with API keys: each sends the most expensive requests of one kind at a constant rate until cancelled."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import httpx

from scripts.soak_runs.http_upstream import FLOODS, STREAMING
from scripts.soak_runs.upstream import HOSTILE, MALFORMED_RESPONSES

NAMES, HELD, CORRELATED = "hung_names", "held_deliveries", "correlated_webhooks"
GARBLING, FLOODING = "garbling_upstream", "flooding_upstream"
FLOODING_STREAMS = "flooding_streams"
FILTERS, CURSORS = "fruitless_filters", "old_cursors"
WEBHOOKS: Final = 1000
"""The default quota."""
TIMEOUT_SECONDS: Final = 30.0
REGISTERING_AT_ONCE: Final = 4
UNMATCHED_FILTER: Final = (
    "/v1/calls?status=cancelled",
    "/v1/calls?tool=none",
    "/v1/calls?upstream=none",
    "/v1/calls?client_session_id=archive&status=failed",
    "/v1/calls?correlation_id=none",
    "/v1/deliveries?state=held",
    "/v1/events?name=call.progress",
    "/v1/events?correlation_id=none",
)
"""Filters that match nothing of the principal's stored data."""


class Caller:
    """The client of one hostile principal; counts the responses."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        receiver_url: str,
        done: Counter[str],
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._http = http
        self._receiver_url = receiver_url
        self._done = done
        self._timeout_seconds = timeout_seconds
        """Of each call, except those with large results."""
        self._numbers = itertools.count()

    async def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response | None:
        try:
            response = await self._http.request(method, path, json=body)
        except httpx.TransportError:
            self._done["unanswered"] += 1
            return None
        self._done["requests"] += 1
        self._done["refused"] += response.is_client_error
        self._done["failed"] += response.is_server_error
        return response

    async def start_call(self, tool: str, arguments: dict[str, Any], **more: Any) -> None:
        body = {
            "upstream": HOSTILE,
            "tool": tool,
            "arguments": arguments,
            "timeout_seconds": self._timeout_seconds,
            **more,
        }
        await self.request("POST", "/v1/calls", body)

    # -- one request of each kind --

    async def call_back_to_hung_name(self) -> None:
        url = f"https://hung-{next(self._numbers)}.example/callback"
        await self.start_call("echo", {}, callback={"url": url})

    async def finish_call(self) -> None:
        """Start a call whose end is held for the suspended webhook, or matched against the correlated ones."""
        await self.start_call("echo", {}, correlation_id=f"correlation-{next(self._numbers) % WEBHOOKS}")

    async def call_malformed_tool(self) -> None:
        how = list(MALFORMED_RESPONSES)[next(self._numbers) % len(MALFORMED_RESPONSES)]
        await self.start_call("garble", {"how": how})

    async def call_flooding_tool(self) -> None:
        await self.start_call("flood", {})

    async def call_flooding_stream(self) -> None:
        tools = list(FLOODS)
        await self.start_call(tools[next(self._numbers) % len(tools)], {}, upstream=STREAMING)

    async def make_large_result(self) -> str:
        """The id of a call whose result has 15 MB."""
        body = {"upstream": HOSTILE, "tool": "large", "arguments": {"number": next(self._numbers)}, "wait_seconds": 30}
        started = await self.request("POST", "/v1/calls", body)
        return "" if started is None else started.json()["call_id"]

    async def filter_without_matches(self) -> None:
        await self.request("GET", UNMATCHED_FILTER[next(self._numbers) % len(UNMATCHED_FILTER)])

    async def register_with_an_old_cursor(self) -> None:
        """Register a webhook with an old cursor, and remove it some turns later, while it catches up."""
        page = await self.request("GET", "/v1/events?limit=1")
        cursor = page.json().get("next_cursor") if page is not None else None
        body = {"url": self._receiver_url, "cursor": cursor, "client_session_id": "archive"}
        registered = await self.request("POST", "/v1/webhooks", body)
        if registered is not None and registered.is_success:
            await asyncio.sleep(1)
            await self.request("DELETE", f"/v1/webhooks/{registered.json()['id']}")

    async def register_correlated(self, webhooks: int) -> None:
        """Register so many webhooks, a few at a time."""
        left = iter(range(webhooks))
        await asyncio.gather(*(self._register_each(left) for _ in range(REGISTERING_AT_ONCE)))

    async def _register_each(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            body = {
                "url": self._receiver_url,
                "correlation_id": f"correlation-{number}",
                "match_correlation": True,
            }
            await self.request("POST", "/v1/webhooks", body)


OneRequest = Callable[[Caller], Awaitable[None]]
KINDS: Final[dict[str, tuple[OneRequest, float]]] = {
    NAMES: (Caller.call_back_to_hung_name, 3.0),
    HELD: (Caller.finish_call, 1.0),
    CORRELATED: (Caller.finish_call, 1.0),
    GARBLING: (Caller.call_malformed_tool, 0.5),
    FLOODING: (Caller.call_flooding_tool, 0.1),
    FLOODING_STREAMS: (Caller.call_flooding_stream, 0.3),
    FILTERS: (Caller.filter_without_matches, 3.0),
    CURSORS: (Caller.register_with_an_old_cursor, 0.25),
}
"""The request of each kind, and how often a second: far more than honest use, and not more than two cores can serve."""


async def run_hostile_caller(kind: str, caller: Caller) -> None:
    """Repeat at a constant rate until cancelled, without waiting for responses."""
    once, per_second = KINDS[kind]
    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(run_step(once, caller))
            await asyncio.sleep(1 / per_second)


async def run_step(once: OneRequest, caller: Caller) -> None:
    await once(caller)
