"""The streams of a legacy session, with the ids of their events: opens, reads and resumes them."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, LegacyClientSession


@dataclass(slots=True)
class Event:
    id: str | None
    retry: int | None
    data: Any


class EventReader:
    """The events of a stream, with their ids."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._events = self._read()

    async def next(self) -> Event:
        async with asyncio.timeout(WAIT_SECONDS):
            return await anext(self._events)

    async def next_message(self) -> Event:
        """The next event with data. The first one of a stream has none."""
        while (event := await self.next()).data is None:
            pass
        return event

    async def read_response(self) -> Event:
        """The next event with a response."""
        while True:
            event = await self.next()
            if event.data is not None and "method" not in event.data:
                return event

    async def has_ended(self) -> bool:
        async with asyncio.timeout(WAIT_SECONDS):
            return [event async for event in self._events] == []

    async def _read(self) -> AsyncIterator[Event]:
        fields: dict[str, str] = {}
        async for line in self.response.aiter_lines():
            if not line and fields:
                data = fields.get("data")
                retry = fields.get("retry")
                yield Event(fields.get("id"), int(retry) if retry else None, json.loads(data) if data else None)
                fields = {}
            name, _, value = line.partition(": ")
            if name:
                fields[name] = value


@asynccontextmanager
async def open_stream(
    session: LegacyClientSession, method: str, params: Json, *, request_id: int | str = 7
) -> AsyncGenerator[EventReader]:
    body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    async with session.http.stream("POST", session.url, json=body, headers=session.headers) as response:
        assert response.status_code == 200
        yield EventReader(response)


@asynccontextmanager
async def resume_stream(session: LegacyClientSession, event_id: str | None) -> AsyncGenerator[EventReader]:
    headers = {**session.headers, "accept": "text/event-stream"}
    if event_id is not None:
        headers["last-event-id"] = event_id
    async with session.http.stream("GET", session.url, headers=headers) as response:
        yield EventReader(response)
