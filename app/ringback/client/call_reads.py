"""The client's methods that read calls, and wait for their ends."""

from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime
from typing import Any

from ringback.client.arguments import list_texts, quote_path_segment
from ringback.client.awaited_calls import find_matching_calls
from ringback.client.models import Call, CallPage, Joined
from ringback.client.problems import InvalidArgument
from ringback.client.resource_client import LONG_POLL_SPACING_SECONDS, WAIT_SECONDS_MAX, ResourceClient, without_none


class CallReadMethods(ResourceClient):
    async def call(self, call_id: str, *, wait_seconds: float | None = None) -> Call:
        """Read a call. With `wait_seconds` (at most 45), return when its status changes or the time is over."""
        return await self._transport.fetch_model(
            Call,
            "GET",
            call_path(call_id),
            params=without_none({"wait_seconds": wait_seconds}),
            wait_seconds=wait_seconds,
        )

    async def calls(
        self,
        *,
        client_session_id: str | None = None,
        correlation_id: str | None = None,
        status: str | None = None,
        upstream: str | None = None,
        tool: str | None = None,
        started: bool | None = None,
        outcome: Sequence[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        id_prefix: str | None = None,
        min_runs: int | None = None,
        min_delivery_attempts: int | None = None,
    ) -> AsyncGenerator[Call]:
        """Your calls, newest first. Finds a call by your own ids.

        `started`: whether calls were sent to their upstream; with the status `working`, False finds those that wait to start.
        `outcome`: how calls ended. `since` and `until` are about their creation, `min_delivery_attempts` about one delivery.
        """
        where = {
            "client_session_id": client_session_id,
            "correlation_id": correlation_id,
            "status": status,
            "upstream": upstream,
            "tool": tool,
            "started": started,
            "outcome": None if outcome is None else list_texts(outcome, "outcome"),
            "since": since and since.isoformat(),
            "until": until and until.isoformat(),
            "id_prefix": id_prefix,
            "min_runs": min_runs,
            "min_delivery_attempts": min_delivery_attempts,
        }
        async for page in self._iterate_pages(CallPage, "/v1/calls", where):
            for call in page.calls:
                yield call

    async def wait(self, call_id: str, *, timeout_seconds: float | None = None) -> Call:
        """Wait until the call ends or the time is over, and return it. A call that needs input does not end the wait."""
        ends_at = float("inf") if timeout_seconds is None else self._clock.monotonic() + timeout_seconds
        while True:
            began = self._clock.monotonic()
            call = await self.call(call_id, wait_seconds=max(0.0, min(WAIT_SECONDS_MAX, ends_at - began)))
            if call.final or self._clock.monotonic() >= ends_at:
                return call
            await self._sleep_until(min(began + LONG_POLL_SPACING_SECONDS, ends_at))

    async def wait_any(self, call_ids: Sequence[str], *, timeout_seconds: float | None = None) -> Sequence[Call]:
        """Wait until one of the calls (at most 100) has ended or the time is over, and return all in the given order."""
        return await self._join(call_ids, "any", timeout_seconds)

    async def wait_all(self, call_ids: Sequence[str], *, timeout_seconds: float | None = None) -> Sequence[Call]:
        """Wait until all calls (at most 100) have ended or the time is over, and return them in the given order."""
        return await self._join(call_ids, "all", timeout_seconds)

    async def _join(self, call_ids: Sequence[str], mode: str, timeout_seconds: float | None) -> Sequence[Call]:
        ids = list_texts(call_ids, "call_ids")
        ends_at = float("inf") if timeout_seconds is None else self._clock.monotonic() + timeout_seconds
        while True:
            began = self._clock.monotonic()
            wait_seconds = max(0.0, min(WAIT_SECONDS_MAX, ends_at - began))
            body = {"call_ids": ids, "mode": mode, "wait_seconds": wait_seconds}
            joined = await self._transport.fetch_model(
                Joined, "POST", "/v1/calls/wait", body=body, wait_seconds=wait_seconds, repeatable=True
            )
            if joined.done or self._clock.monotonic() >= ends_at:
                return joined.calls
            await self._sleep_until(min(began + LONG_POLL_SPACING_SECONDS, ends_at))

    async def wait_calls(
        self,
        *,
        client_session_id: str | None = None,
        correlation_id: str | None = None,
        upstream: str | None = None,
        tool: str | None = None,
        since: datetime | None = None,
        timeout_seconds: float | None = None,
        on_progress: Callable[[Sequence[Call]], None] | None = None,
    ) -> Sequence[Call]:
        """Wait until your calls that match now have ended or the time is over, and return them, newest first.

        At least one filter is needed, and at most 10,000 calls may match. Calls that had already ended are returned, too; calls
        that start during the wait are not waited for, and calls that are erased during it are left out. `since` is about their
        creation. `on_progress` gets the same calls before the wait, and every 15 seconds or so.
        """
        where: dict[str, Any] = {
            "client_session_id": client_session_id,
            "correlation_id": correlation_id,
            "upstream": upstream,
            "tool": tool,
            "since": since,
        }
        if all(value is None for value in where.values()):
            raise InvalidArgument(f"Give at least one filter: {', '.join(where)}.")
        ends_at = float("inf") if timeout_seconds is None else self._clock.monotonic() + timeout_seconds
        matching = await find_matching_calls(self, where)
        report = on_progress or _ignore_progress
        report(matching.calls)
        while not matching.all_ended and (remaining := ends_at - self._clock.monotonic()) > 0:
            await matching.wait_round(remaining)
            report(matching.calls)
        return matching.calls


def _ignore_progress(_: Sequence[Call]) -> None: ...


def call_path(call_id: str, rest: str = "") -> str:
    return f"/v1/calls/{quote_path_segment(call_id, 'call_id')}{rest}"
