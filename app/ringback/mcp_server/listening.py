"""What clients are told unasked: by `subscriptions/listen` on 2026-07-28, in the session before.

    subscriptions/listen      {taskIds, resourceSubscriptions, toolsListChanged, promptsListChanged, resourcesListChanged}
                              acknowledged with what is accepted, then a stream until somebody ends it; after a
                              while that is us, with a result, and who comes back has its key looked at again
    resources/subscribe       and unsubscribe: updates go to the session's own stream
    after `initialized`       changed lists go there too

A task or resource that is not the caller's is not acknowledged, exactly like one that does not exist. A stream begins with
every task as it is, so a client that comes back has missed nothing that counts. Nothing is kept for a client that is away or
reads slowly: it is told the latest state when it takes it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import INVALID_PARAMS

from ringback.domain.errors import Gone, NotFound, QuotaExceeded
from ringback.domain.ids import CallId
from ringback.mcp_server.exchange import Exchange
from ringback.mcp_server.following import following
from ringback.mcp_server.gateway import Capabilities, Era, Feature, Gateway, Method, Result
from ringback.mcp_server.meta import extended
from ringback.mcp_server.news import LIST_CHANGED, Accepted, News
from ringback.mcp_server.task_shapes import TaskShapes
from ringback.mcp_server.tasks import detailed, require_tasks
from ringback.mcp_server.telling import TOLD_IN_SESSION_MAX, tell_request, tell_session, told_in_session
from ringback.services.events import FOLLOW_SECONDS_MAX
from ringback.waits import first_of

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
LISTENED_MAX: Final = 128
"""Tasks, and again resources, on one stream; what comes behind them is not acknowledged. Each takes 6 KB (measured). With a
principal's streams (a quota) this bounds what it can make the service follow."""
RETRY_SECONDS: Final = 30
_LISTS: Final[Mapping[str, str]] = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}
_LIST_NEWS: Final = "lists"


def feature(gateway: Gateway) -> Feature:
    listening, subscribing = Listening(gateway), Subscribing(gateway)
    return Feature(
        methods=(
            Method(
                name="subscriptions/listen",
                params=types.SubscriptionsListenRequestParams,
                handler=listening.listen,
                eras=("modern",),
            ),
            Method(
                name="resources/subscribe",
                params=types.SubscribeRequestParams,
                handler=subscribing.subscribe,
                eras=("legacy",),
            ),
            Method(
                name="resources/unsubscribe",
                params=types.UnsubscribeRequestParams,
                handler=subscribing.unsubscribe,
                eras=("legacy",),
            ),
        ),
        notifications={"notifications/initialized": subscribing.initialized},
        advertise=_advertise,
    )


class Listening:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def listen(self, exchange: Exchange, params: types.SubscriptionsListenRequestParams) -> Result:
        wanted = params.notifications.model_dump(by_alias=True, exclude_none=True)
        task_ids = _texts(wanted, "taskIds")
        if task_ids:
            require_tasks(exchange)
        with self._gateway.quotas.stream(exchange.caller.principal):
            stream = _Stream(self._gateway, exchange)
            await stream.run(
                task_ids, _texts(wanted, "resourceSubscriptions"), [key for key in _LISTS if wanted.get(key)]
            )
        return {"_meta": stream.meta}


class _Stream:
    """One listen request, from its acknowledgement to its end."""

    def __init__(self, gateway: Gateway, exchange: Exchange) -> None:
        self._gateway = gateway
        self._exchange = exchange
        self._news = News(gateway)
        self._shapes = TaskShapes(result_retention_seconds=gateway.config.result_retention_seconds)
        self._acknowledged = asyncio.Event()
        self.meta = {SUBSCRIPTION_ID_META_KEY: exchange.context.request_id}

    async def run(self, task_ids: Sequence[str], uris: Sequence[str], lists: Sequence[str]) -> None:
        """Until the service stops or `FOLLOW_SECONDS_MAX` are over; a client that leaves cancels this.

        Raises what fails first.
        """
        tasks = await self._own_tasks(task_ids[:LISTENED_MAX])
        try:
            async with asyncio.TaskGroup() as group:
                await self._follow(group, tasks, uris[:LISTENED_MAX], lists)
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None  # as itself it is answered; a group is known to nobody

    async def _follow(
        self, group: asyncio.TaskGroup, tasks: Sequence[CallId], uris: Sequence[str], lists: Sequence[str]
    ) -> None:
        accepted: dict[str, Accepted] = {uri: asyncio.get_running_loop().create_future() for uri in uris}
        work = [
            group.create_task(self._news.resource(self._exchange, uri, self._tell, each))
            for uri, each in accepted.items()
        ]
        work += [group.create_task(self._task(call_id)) for call_id in tasks]
        if lists:
            wanted = [_LISTS[key] for key in lists]
            work.append(group.create_task(self._news.lists(self._exchange, wanted, self._tell)))
        await self._acknowledge(tasks, await _accepted(accepted), lists)
        await first_of(self._gateway.lifecycle.stopping.wait(), self._gateway.clock.sleep(FOLLOW_SECONDS_MAX))
        for each in work:
            each.cancel()

    async def _acknowledge(self, tasks: Sequence[CallId], uris: Sequence[str], lists: Sequence[str]) -> None:
        """Always the first frame."""
        honoured: dict[str, Any] = dict.fromkeys(lists, True)
        honoured |= {"taskIds": tasks} if tasks else {}
        honoured |= {"resourceSubscriptions": uris} if uris else {}
        await tell_request(self._exchange.context, ACKNOWLEDGED, {"notifications": honoured, "_meta": self.meta})
        self._acknowledged.set()

    async def _own_tasks(self, task_ids: Sequence[str]) -> Sequence[CallId]:
        own: list[CallId] = []
        for task_id in dict.fromkeys(task_ids):
            try:
                own.append((await self._gateway.calls.get(self._exchange.caller, task_id)).id)
            except (NotFound, Gone):
                continue
        return own

    async def _task(self, call_id: CallId) -> None:
        with suppress(NotFound, Gone), following(self._gateway, self._exchange.caller, call_id) as calls:
            while call := await calls.next():
                task = await detailed(self._gateway, self._shapes, self._exchange.caller, call)
                await self._tell("notifications/tasks", task)

    async def _tell(self, method: str, params: Mapping[str, Any]) -> None:
        await self._acknowledged.wait()
        await tell_request(self._exchange.context, method, extended(params, self.meta))


async def _accepted(resources: Mapping[str, Accepted]) -> Sequence[str]:
    # Shielded, because whoever follows them may be about to answer when the client leaves.
    answers = await asyncio.gather(*map(asyncio.shield, resources.values()), return_exceptions=True)
    return [uri for uri, answer in zip(resources, answers, strict=True) if answer is None]


class Subscribing:
    """resources/subscribe and unsubscribe, of before 2026-07-28."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._news = News(gateway)

    async def subscribe(self, exchange: Exchange, params: types.SubscribeRequestParams) -> Result:
        told, uri = told_in_session(exchange.context, self._gateway.background), str(params.uri)
        if not told.has_room_for(_name(uri)):
            raise QuotaExceeded(
                f"This session hears of {TOLD_IN_SESSION_MAX} tasks and resources already. Unsubscribe from some of them.",
                retry_after_seconds=RETRY_SECONDS,
            )
        accepted: Accepted = asyncio.get_running_loop().create_future()
        tell = partial(tell_session, exchange.context)
        told.start(_name(uri), lambda: self._news.resource(exchange, uri, tell, accepted))
        await asyncio.shield(accepted)  # the request may be cancelled, and the subscription is there all the same
        return {}

    async def unsubscribe(self, exchange: Exchange, params: types.UnsubscribeRequestParams) -> Result:
        told_in_session(exchange.context, self._gateway.background).stop(_name(str(params.uri)))
        return {}

    async def initialized(self, exchange: Exchange) -> None:
        """From now on the session is told when a list changes."""
        tell = partial(tell_session, exchange.context)
        told = told_in_session(exchange.context, self._gateway.background)
        told.start(_LIST_NEWS, lambda: self._news.lists(exchange, set(LIST_CHANGED.values()), tell))


def _name(uri: str) -> str:
    return f"resource {uri}"


def _texts(wanted: Mapping[str, Any], key: str) -> Sequence[str]:
    value = wanted.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in cast("list[Any]", value)):
        raise MCPError(INVALID_PARAMS, f"notifications.{key} must be a list of texts.")
    return cast("list[str]", value)


def _advertise(_era: Era, capabilities: Capabilities) -> None:
    for kind in ("tools", "prompts", "resources"):
        if kind in capabilities:
            capabilities[kind] = {**capabilities[kind], "listChanged": True}
    if "resources" in capabilities:
        capabilities["resources"] = {**capabilities["resources"], "subscribe": True}
