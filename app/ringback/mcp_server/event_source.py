"""How a client subscribes to the end of a call: `_meta["ringback/eventSource"]` of task results and pending results.

    {"name": "call.finished", "arguments": {"call_id": …}, "initialCursor": …}

are the params of events/poll, events/stream and events/subscribe. A client that comes late, or from another process, gets the
end that has happened before: the cursor is older than the call. A draft (triggers-events, Task Event Sources) has the field
`eventSource` {name, input, initialCursor} in CreateTaskResult, for clients that declare the events extension; it is sent if the
operator sets RINGBACK_TASK_EVENT_SOURCE.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from ringback.domain.call import Call
from ringback.domain.errors import StoreUnavailable
from ringback.domain.event import EventName
from ringback.domain.ids import CallId
from ringback.mcp_server.gateway import Gateway, Result
from ringback.mcp_server.meta import with_meta
from ringback.mcp_server.request_context import RequestContext
from ringback.protocol.mcp_events.names import EVENT_SOURCE_META_KEY, EVENTS_EXTENSION

CURSORS_KEPT_MAX: Final = 10_000
"""As many calls as one process is built for. A task is polled many times, and its cursor never changes."""


class EventSources:
    """Adds the event source of a call to results about it."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._cursors: OrderedDict[CallId, str] = OrderedDict()

    async def add_to_meta(self, result: Mapping[str, Any], call: Call) -> Result:
        """The result without it while the store is unavailable: an error would say that nothing was started."""
        try:
            cursor = await self._get_initial_cursor(call)
        except StoreUnavailable:
            return dict(result)
        source = {"name": str(EventName.CALL_FINISHED), "arguments": {"call_id": call.id}, "initialCursor": cursor}
        return with_meta(result, {EVENT_SOURCE_META_KEY: source})

    async def add_to_created_task(self, context: RequestContext, result: Mapping[str, Any], call: Call) -> Result:
        """Add it to a CreateTaskResult, with the draft's field if it is enabled and the client declares the extension."""
        created = await self.add_to_meta(result, call)
        source = created["_meta"].get(EVENT_SOURCE_META_KEY)
        is_enabled = self._gateway.config.task_event_source and context.declares_extension(EVENTS_EXTENSION)
        if source is None or not is_enabled:
            return created
        draft = {"name": source["name"], "input": source["arguments"], "initialCursor": source["initialCursor"]}
        return {**created, "eventSource": draft}

    async def _get_initial_cursor(self, call: Call) -> str:
        if (cursor := self._cursors.get(call.id)) is None:
            cursor = self._cursors[call.id] = await self._gateway.event_polls.find_cursor_before(call)
            if len(self._cursors) > CURSORS_KEPT_MAX:
                self._cursors.popitem(last=False)
        return cursor
