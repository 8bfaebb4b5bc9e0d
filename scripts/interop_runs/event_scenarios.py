"""The scenarios of a client of MCP Events. Its webhook handler is its own; a call's end must reach it as an event.

list         the client reads the event types, and call.finished has webhooks
subscribe    the client's endpoint answers the challenge, and the client stores a subscription that ends
event        a call of the subscribed session ends, and the handler accepts its event once
filter       a subscription to another session gets nothing
twice        two subscriptions to one event get it with one eventId, each with its own subscription id
refused      arguments against the inputSchema are refused with -32602, and leave no subscription
replay       a new subscription from an earlier event's cursor gets what followed it
refresh      the same subscription under the same id, and the next event arrives
restart      Ringback is killed and restarted; the next event arrives, and a refresh has the same id
unsubscribe  the subscription gets nothing afterwards
legacy       list, subscribe, event and unsubscribe after `initialize` instead of `server/discover`
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Protocol

from scripts.interop_runs import judge
from scripts.interop_runs.driver_process import DriverProcess
from scripts.interop_runs.event_clients import EventsClient
from scripts.interop_runs.judge import Judgement, outcome_of
from scripts.interop_runs.scenarios import POLL_SECONDS, SETTLE_SECONDS, new_key

FINISHED: Final = "call.finished"
INVALID_PARAMS: Final = -32602
WEBHOOK: Final = "webhook"
SUBSCRIPTION_ID_PREFIX: Final = "sub_"

Json = dict[str, Any]


class EventsStage(Protocol):
    """A Ringback in front of a server that has the tool `fast`."""

    @property
    def url(self) -> str: ...

    async def restart(self, number: signal.Signals) -> None: ...


class EventsFailed(Exception):
    """The client, or what it received, is not as it should be; the message says how."""


@dataclass(slots=True, kw_only=True)
class EventsRun:
    client: EventsClient
    driver: DriverProcess
    stage: EventsStage
    only: Sequence[str] = ()
    """The scenarios to run. Default: all."""
    note: Callable[[str], None] = print
    _session: str = field(default_factory=lambda: f"session-{new_key()}")
    _witness: Json = field(default_factory=dict[str, Any])
    """A subscription to all ends of the session: what it got, the others could have got."""

    async def run(self) -> dict[str, Judgement]:
        """The judgements by scenario; only `open` if the client cannot connect or subscribe."""
        try:
            await self._open(legacy=False)
            self._witness = await self._subscribe()
            return {name: await self._judge(name, scenario) for name, scenario in self._wanted().items()}
        except EventsFailed as problem:
            return {"open": self._noted("open", judge.failed(str(problem)))}
        finally:
            await self.driver.kill()

    def _wanted(self) -> Mapping[str, Callable[[], Awaitable[str]]]:
        scenarios: dict[str, Callable[[], Awaitable[str]]] = {
            "list": self._list,
            "subscribe": self._check_subscription,
            "event": self._event,
            "filter": self._filter,
            "twice": self._twice,
            "refused": self._refused,
            "replay": self._replay,
            "refresh": self._refresh,
            "restart": self._restart,
            "unsubscribe": self._unsubscribe,
            "legacy": self._legacy,
        }
        return {name: scenario for name, scenario in scenarios.items() if not self.only or name in self.only}

    async def _judge(self, name: str, scenario: Callable[[], Awaitable[str]]) -> Judgement:
        try:
            judgement = judge.passed(await scenario())
        except EventsFailed as problem:
            judgement = judge.failed(str(problem))
        return self._noted(name, judgement)

    def _noted(self, name: str, judgement: Judgement) -> Judgement:
        self.note(f"{self.client.name:<26} {name:<11} {judgement.verdict:<12} {judgement.detail}")
        return judgement

    # -- the scenarios: each returns what a reader of the log wants to know ---------------------------------------------------

    async def _list(self) -> str:
        listed = (await self._ask({"do": "events"}))["events"]
        by_name: dict[str, Json] = {event["name"]: event for event in listed}
        _check(FINISHED in by_name, f"no {FINISHED} among {', '.join(by_name)}")
        _check(WEBHOOK in by_name[FINISHED]["delivery"], f"{FINISHED} has no webhooks")
        return ", ".join(by_name)

    async def _check_subscription(self) -> str:
        subscription = await self._subscribe(ttl_ms=3_600_000)
        _check(str(subscription["id"]).startswith(SUBSCRIPTION_ID_PREFIX), f"the id is {subscription['id']!r}")
        _check(subscription["refreshBefore"] is not None, "the subscription never ends, which was not requested")
        challenges = [post for post in await self._posts(subscription) if post["type"] == "verification"]
        _check([post["status"] for post in challenges] == [200], f"the challenges were answered {challenges}")
        await self._ask({"do": "unsubscribe", "key": subscription["key"]})
        return f"until {subscription['refreshBefore']}"

    async def _event(self) -> str:
        event = await self._end_call()
        posts = [post for post in await self._posts(self._witness) if post["webhook_id"] == event["eventId"]]
        accepted = [post["status"] for post in posts if post["status"] == HTTPStatus.NO_CONTENT]
        _check(len(accepted) == 1, f"the event was accepted {len(accepted)} times")
        _check(event["data"]["status"] == "completed", f"the event's status is {event['data']['status']!r}")
        return "at once" if len(posts) == 1 else f"after {len(posts) - 1} answers that ask for another attempt"

    async def _filter(self) -> str:
        other = await self._subscribe(client_session_id=f"session-{new_key()}")
        await self._end_call()
        await self._ask({"do": "unsubscribe", "key": other["key"]})
        _check(not await self._events_of(other), "the subscription to another session got an event")
        return "no event"

    async def _twice(self) -> str:
        second = await self._subscribe()
        event = await self._end_call(also=[second])
        await self._ask({"do": "unsubscribe", "key": second["key"]})
        _check(second["id"] != self._witness["id"], "both subscriptions have one id")
        return f"{event['eventId']} at both"

    async def _refused(self) -> str:
        command = {"do": "subscribe", "name": FINISHED, "arguments": {"client_session_id": 7}}
        answer = await self.driver.exchange(command)
        _check(answer.get("code") == INVALID_PARAMS, f"the answer is {answer}")
        return str(answer["raised"])

    async def _replay(self) -> str:
        first, second = await self._end_call(), await self._end_call()
        _check(first.get("cursor") is not None, "the event has no cursor")
        late = await self._subscribe(cursor=first["cursor"])
        await _wait_until(partial(self._has, late, second["eventId"]))
        await self._ask({"do": "unsubscribe", "key": late["key"]})
        _check(await self._has(late, second["eventId"]), "the event after the cursor did not arrive")
        return f"{len(await self._events_of(late))} events"

    async def _refresh(self) -> str:
        again = await self._ask({"do": "refresh", "key": self._witness["key"]})
        _check(again["id"] == self._witness["id"], f"the id was {self._witness['id']}, and is {again['id']}")
        await self._end_call()
        return f"until {again['refreshBefore']}"

    async def _restart(self) -> str:
        await self.stage.restart(signal.SIGKILL)
        await self._end_call()
        return await self._refresh()

    async def _unsubscribe(self) -> str:
        ended = await self._subscribe()
        await self._end_call(also=[ended])
        await self._ask({"do": "unsubscribe", "key": ended["key"]})
        before = len(await self._events_of(ended))
        await self._end_call()
        _check(len(await self._events_of(ended)) == before, "an event came after the end of the subscription")
        return "no event"

    async def _legacy(self) -> str:
        await self.driver.close()
        await self._open(legacy=True)
        await self._list()
        subscription = await self._subscribe()
        event = await self._end_call(also=[subscription])
        await self._ask({"do": "unsubscribe", "key": subscription["key"]})
        return f"{event['eventId']} at both"

    # -- what the client does -------------------------------------------------------------------------------------------------

    async def _open(self, *, legacy: bool) -> None:
        headers = {"Ringback-Client-Session-Id": self._session}
        await self._ask({"do": "open", "url": self.stage.url, "headers": headers, "legacy": legacy})

    async def _subscribe(self, *, client_session_id: str | None = None, **options: Any) -> Json:
        arguments = {"client_session_id": client_session_id or self._session}
        return await self._ask({"do": "subscribe", "name": FINISHED, "arguments": arguments, **options})

    async def _end_call(self, also: Sequence[Json] = ()) -> Json:
        """Call a tool that returns at once. Returns the event of its end, which the witness and these subscriptions got."""
        known = {event["eventId"] for event in await self._events_of(self._witness)}
        key = new_key()
        answer = await self.driver.call("fast", {"key": key})
        _check(answer.raised is None and outcome_of(key) in answer.text, f"the call: {answer.raised or answer.text}")

        async def is_new() -> bool:
            return any(event["eventId"] not in known for event in await self._events_of(self._witness))

        await _wait_until(is_new)
        new = [event for event in await self._events_of(self._witness) if event["eventId"] not in known]
        _check(len(new) == 1, f"the end of one call brought {len(new)} events")
        for subscription in also:
            await _wait_until(partial(self._has, subscription, new[0]["eventId"]))
            _check(await self._has(subscription, new[0]["eventId"]), f"{subscription['id']} did not get the event")
        return new[0]

    async def _has(self, subscription: Json, event_id: str) -> bool:
        return any(event["eventId"] == event_id for event in await self._events_of(subscription))

    async def _events_of(self, subscription: Json) -> list[Json]:
        received = (await self._ask({"do": "received"}))["events"]
        return [each["event"] for each in received if each["subscription"] == subscription["id"]]

    async def _posts(self, subscription: Json) -> list[Json]:
        posts: list[Json] = (await self._ask({"do": "received"}))["posts"]
        return [post for post in posts if post["subscription"] == subscription["id"]]

    async def _ask(self, command: Json) -> Json:
        answer = await self.driver.exchange(command)
        _check(answer.get("raised") is None, f"{command['do']} raised {answer.get('raised')}")
        return answer


def _check(holds: bool, problem: str) -> None:  # noqa: FBT001 - as `assert` has it
    if not holds:
        raise EventsFailed(problem)


async def _wait_until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what other processes do; the caller decides about what has not happened until then."""
    ends_at = asyncio.get_running_loop().time() + SETTLE_SECONDS
    while not await holds() and asyncio.get_running_loop().time() < ends_at:  # noqa: ASYNC110 - as in `scenarios`
        await asyncio.sleep(POLL_SECONDS)
