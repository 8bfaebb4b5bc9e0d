"""Latency from a commit to the receiver, and from a tool's end to the receiver; the time of an fsync for comparison."""

import asyncio
import json
import sys
import time
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from pydantic import SecretStr

from ringback.bootstrap import Application, open_application
from ringback.domain.call import Call
from ringback.domain.delivery_rows import DeliveryFilter
from ringback.domain.ids import CallId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import ALL_SCOPES, Caller
from ringback.domain.signals import call_changed_topic
from ringback.services.calls.call_starts import StartCallRequest
from ringback.services.webhooks.registrations import WebhookRegistration
from ringback.settings import Settings
from ringback.signing.sealing import KEY_BYTES
from ringback.upstreams.config import UpstreamConfig, UpstreamTransport
from scripts.benchmarks.databases import Databases
from scripts.benchmarks.engine import LOOPBACK, BenchmarkEngine, engine
from scripts.benchmarks.measurement import Json, fsync_seconds, latency_ms
from scripts.benchmarks.receiver_process import Arrivals
from scripts.benchmarks.receivers import Receivers
from scripts.benchmarks.signed_post import PRINCIPAL

PER_SECOND: Final = 200
"""The load of design §12: far below the engine's maximum, so that there is no queue."""
TOOLS_PER_SECOND: Final = 50
"""The same for whole calls. Their upstream and SDK take most of a core at ten times this rate."""
ARRIVAL_TIMEOUT_SECONDS: Final = 20.0
"""For the last callback. Longer than an attempt, so that a permit held for a hung receiver becomes free meanwhile."""
POLL_SECONDS: Final = 0.1
UPSTREAM: Final = "benchmark"
CALLER: Final = Caller(principal=PRINCIPAL, scopes=ALL_SCOPES)


class CallbackSeconds(NamedTuple):
    """Seconds until a callback arrives in the receiver's process."""

    after_completion: float
    """Since the engine was given the end of the call: with the commit that writes it."""
    after_commit: float
    """Since that commit returned."""


async def latency(receivers: Receivers, databases: Databases, *, rounds: int, seconds: float) -> Json:
    commit: list[list[float]] = []
    tool: list[list[float]] = []
    fsync: list[list[float]] = []
    for _ in range(rounds):
        commit.append(await commit_to_receiver(receivers, databases, seconds=seconds))
        tool.append(await tool_end_to_receiver(receivers, databases, seconds=seconds))
        with TemporaryDirectory(prefix="ringback-bench-") as folder:
            fsync.append(fsync_seconds(Path(folder)))
    return {
        "commit_to_receiver": {"per_second": PER_SECOND, **latency_ms(commit)},
        "tool_end_to_receiver": {"per_second": TOOLS_PER_SECOND, **latency_ms(tool)},
        "fsync": latency_ms(fsync),
    }


async def commit_to_receiver(receivers: Receivers, databases: Databases, *, seconds: float) -> list[float]:
    """Seconds from the return of the commit to the request's arrival in the receiver's process."""
    urls = receivers.urls("/timed")
    async with engine(urls, databases) as made, made.running_dispatcher():
        return [each.after_commit for each in await measure_at_rate(made, receivers, urls, seconds=seconds)]


async def measure_at_rate(
    made: BenchmarkEngine, receivers: Receivers, urls: Sequence[str], *, seconds: float
) -> list[CallbackSeconds]:
    """End calls at a constant rate while the dispatcher runs, and measure the arrival of each callback.

    A callback that is missing at the timeout counts with the time waited.
    """
    calls = await made.running_calls(urls, max(1, round(PER_SECOND * seconds)))
    await receivers.arrivals()
    times: dict[CallId, tuple[float, float]] = {}
    began = time.monotonic()
    async with asyncio.TaskGroup() as ending:
        for number, call in enumerate(calls):
            await asyncio.sleep(began + number / PER_SECOND - time.monotonic())
            ending.create_task(_end(made, call, times))
    messages = {call.id: await _message_id(made.store, call.id) for call in calls}
    arrivals = await _await_arrivals(receivers, set(messages.values()))
    given_up = time.monotonic()
    arrived = {call: arrivals.get(messages[call], given_up) for call in times}
    return [CallbackSeconds(arrived[call] - ended, arrived[call] - at) for call, (ended, at) in times.items()]


async def _end(made: BenchmarkEngine, call: Call, times: dict[CallId, tuple[float, float]]) -> None:
    ended = time.monotonic()
    await made.finish_call(call)
    times[call.id] = ended, time.monotonic()


async def tool_end_to_receiver(receivers: Receivers, databases: Databases, *, seconds: float) -> list[float]:
    """The whole service with a stdio upstream: seconds from the tool's end to the receiver, with the commit."""
    command = [sys.executable, "-m", "scripts.benchmarks.upstream"]
    upstream = UpstreamConfig(
        name=UPSTREAM, transport=UpstreamTransport.STDIO, command=command[0], args=tuple(command[1:]), max_concurrent=16
    )
    async with databases.empty_database() as url:
        settings = Settings(
            database_url=url,
            secret_keys=SecretStr(f"benchmark:{b64encode(bytes(KEY_BYTES)).decode()}"),
            callback_private_cidrs=LOOPBACK.private_cidrs,
            callback_http=True,
            auth="off",
        )
        stop = asyncio.Event()
        async with open_application(settings, [upstream]) as app, asyncio.TaskGroup() as group:
            group.create_task(app.run(stop))
            try:
                return await _call_tools(app, receivers, count=max(1, round(TOOLS_PER_SECOND * seconds)))
            finally:
                stop.set()


async def _call_tools(app: Application, receivers: Receivers, *, count: int) -> list[float]:
    urls = receivers.urls("/timed")
    for url in urls:
        await app.services.registrations.register_webhook(CALLER, WebhookRegistration(url=url, client_session_id=url))
    await list_end_times(app.store, [await _call_tool(app, urls[0])])  # starts the upstream's process
    await receivers.arrivals()
    calls: list[CallId] = []
    began = time.monotonic()
    for number in range(count):
        await asyncio.sleep(began + number / TOOLS_PER_SECOND - time.monotonic())
        calls.append(await _call_tool(app, urls[number % len(urls)]))
    ended = await list_end_times(app.store, calls)
    messages = {call: await _message_id(app.store, call) for call in calls}
    arrivals = await _await_arrivals(receivers, set(messages.values()))
    given_up = time.monotonic()
    return [arrivals.get(messages[call], given_up) - at for call, at in ended.items()]


async def _call_tool(app: Application, session: str) -> CallId:
    request = StartCallRequest(upstream=UPSTREAM, tool="stamp", client_session_id=session)
    return (await app.services.calls.start_call(CALLER, request)).call.id


async def list_end_times(store: Store, calls: Sequence[CallId]) -> dict[CallId, float]:
    """The time of each tool's end, from its result."""
    ended: dict[CallId, float] = {}
    async with asyncio.timeout(ARRIVAL_TIMEOUT_SECONDS):
        for call in calls:
            result = await _result(store, call)
            ended[call] = float(json.loads(result)["content"][0]["text"])
    return ended


async def _result(store: Store, call: CallId) -> bytes:
    with store.signals.listen(call_changed_topic(call)) as bell:
        while (result := await store.read(lambda tx: tx.call_completions.get_result(call))) is None:
            await bell.wait(POLL_SECONDS)
    return result


async def _message_id(store: Store, call: CallId) -> str:
    async def read(tx: Transaction) -> str:
        (delivery,) = await tx.deliveries.list_page(PRINCIPAL, DeliveryFilter(call_id=call), position=None, limit=2)
        return delivery.message_id

    return await store.read(read)


async def _await_arrivals(receivers: Receivers, messages: set[str]) -> Arrivals:
    found = await receivers.arrivals()
    give_up_at = time.monotonic() + ARRIVAL_TIMEOUT_SECONDS
    while not messages <= found.keys() and time.monotonic() < give_up_at:
        await asyncio.sleep(POLL_SECONDS)
        found |= await receivers.arrivals()
    return found
