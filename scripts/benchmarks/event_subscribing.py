"""The cost of events/subscribe, its refresh and events/unsubscribe for a principal with few and with many subscriptions.

The requests go to the service's use cases, with the URL on the operator's allowlist: a challenge costs what its receiver takes.
"""

import asyncio
import secrets
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from ringback.bootstrap import open_application
from ringback.domain.principal import DEFAULT_SCOPES, Caller
from ringback.protocol.mcp_events.backend import SubscriptionRequest
from ringback.protocol.mcp_events.errors import ErrorProfile
from ringback.protocol.mcp_events.grants import TtlRequest
from ringback.protocol.mcp_events.subscription_key import canonical_arguments
from ringback.services.webhooks.event_subscriptions import EventSubscriptions
from ringback.settings import Settings
from ringback.signing.sealing import KEY_BYTES
from scripts.benchmarks.databases import Databases
from scripts.benchmarks.measurement import Json, print_progress, summary
from scripts.benchmarks.signed_post import PRINCIPAL, SECRET
from scripts.benchmarks.store_work import StoreWork, counting_statements

CALLBACK_URL: Final = "https://receiver.example/events"
CALLER: Final = Caller(principal=PRINCIPAL, scopes=DEFAULT_SCOPES)
MAKING_AT_ONCE: Final = 64
OPERATIONS: Final = ("subscribe", "refresh", "unsubscribe")
"""In this order: each acts on the subscriptions of the first."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    subscriptions: EventSubscriptions

    async def run(self, operation: str, session: str) -> None:
        request = _make_request(session)
        if operation == "unsubscribe":
            await self.subscriptions.unsubscribe(CALLER, request.key)
        else:
            await self.subscriptions.subscribe(CALLER, request)

    async def fill(self, count: int) -> None:
        left = iter(range(count))

        async def subscribe() -> None:
            for number in left:
                await self.run("subscribe", f"session-{number}")

        await asyncio.gather(*(subscribe() for _ in range(MAKING_AT_ONCE)))


async def measure_subscribing(made: Databases, sizes: Mapping[str, int], *, rounds: int, requests: int) -> Json:
    """`sizes` are the principal's subscriptions, by "few" and "many"; `requests` of each kind in each round."""
    cpu: dict[str, dict[str, list[float]]] = {operation: {name: [] for name in sizes} for operation in OPERATIONS}
    async with AsyncExitStack() as stack:
        subscribers = {name: await stack.enter_async_context(_open_subscriber(made)) for name in sizes}
        for name, subscriber in subscribers.items():
            await subscriber.fill(sizes[name])
            await _measure_round(subscriber, requests, time.process_time)  # imports, plans, caches
            print_progress(f"subscribing: {sizes[name]:,} subscriptions are made")
        for number in range(rounds):
            for name in list(sizes) if number % 2 == 0 else list(sizes)[::-1]:
                for operation, used in (await _measure_round(subscribers[name], requests, time.process_time)).items():
                    cpu[operation][name].append(used)
        statements = {name: await _count_statements(subscriber, requests) for name, subscriber in subscribers.items()}
    return {
        "subscriptions": dict(sizes),
        "growth": {
            operation: summary([many / few for few, many in zip(each["few"], each["many"], strict=True)], 2)["median"]
            for operation, each in cpu.items()
        },
        "cpu_us": {
            operation: {name: summary([used * 1e6 for used in values], 0) for name, values in each.items()}
            for operation, each in cpu.items()
        },
        "statements": statements,
    }


async def _measure_round(subscriber: Subscriber, requests: int, read_meter: Callable[[], float]) -> dict[str, float]:
    """What the meter shows for one request of each kind. A round ends as it began."""
    sessions = [f"round-{secrets.token_hex(8)}" for _ in range(requests)]
    used: dict[str, float] = {}
    for operation in OPERATIONS:
        before = read_meter()
        for session in sessions:
            await subscriber.run(operation, session)
        used[operation] = (read_meter() - before) / requests
    return used


async def _count_statements(subscriber: Subscriber, requests: int) -> dict[str, float]:
    work = StoreWork()
    with counting_statements(work):
        return await _measure_round(subscriber, requests, lambda: work.statements)


@asynccontextmanager
async def _open_subscriber(made: Databases) -> AsyncGenerator[Subscriber]:
    async with made.empty_database() as url:
        settings = Settings.model_validate(
            {
                "database_url": url,
                "secret_keys": f"benchmark:{b64encode(secrets.token_bytes(KEY_BYTES)).decode()}",
                "callback_allowlist": (CALLBACK_URL,),
                "quota_subscriptions": 1_000_000,
            }
        )
        async with open_application(settings, []) as app:
            yield Subscriber(app.services.event_subscriptions)


def _make_request(session: str) -> SubscriptionRequest:
    arguments = {"client_session_id": session}
    return SubscriptionRequest(
        name="call.finished",
        arguments=arguments,
        canonical_arguments=canonical_arguments(arguments),
        url=CALLBACK_URL,
        secret=SECRET,
        cursor=None,
        max_age_seconds=None,
        ttl=TtlRequest.SERVER_DEFAULT,
        error_profile=ErrorProfile.SKETCH,
    )
