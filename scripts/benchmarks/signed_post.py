"""The callback that every variant sends, and a minimal sender: a loop of aiohttp without a record."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import aiohttp
from yarl import URL

from ringback.domain.call import Call, CallPhase
from ringback.domain.call import apply_completion as finished
from ringback.domain.call_outcome import completion_from_result
from ringback.domain.clock import Clock, SystemClock
from ringback.domain.cursor import LogPosition
from ringback.domain.event import EventName, build_call_event
from ringback.domain.ids import IdGenerator
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook, WebhookSecret
from ringback.notifier.http.sender import ADDED_HEADERS
from ringback.notifier.payload import PayloadBuilder, build_callback_headers
from ringback.notifier.resume_tokens import CallResumeTokens
from ringback.signing.resume_token import ResumeTokenCodec
from scripts.benchmarks.measurement import Measured, measuring

PRINCIPAL: Final = Principal("benchmark")
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="  # noqa: S105 - signs nothing but benchmarks
RESULT: Final = b'{"content":[{"type":"text","text":"done"}],"isError":false}'
HANDOFF_LEASE: Final = "lease_of_the_benchmark"
RETENTION_SECONDS: Final = 7 * 86400.0
IN_FLIGHT: Final = 64


def make_payload_builder() -> PayloadBuilder:
    tokens = CallResumeTokens(
        ResumeTokenCodec([b"k" * 32], audience="benchmark"), result_retention_seconds=RETENTION_SECONDS
    )
    return PayloadBuilder(tokens=tokens, public_url="https://ringback.example")


def running_call(ids: IdGenerator, clock: Clock, *, session: str, principal: Principal = PRINCIPAL) -> Call:
    """A dispatched call."""
    now = clock.now()
    return Call(
        id=ids.new_call_id(),
        principal=principal,
        upstream="benchmark",
        tool="measure_something",
        arguments={"path": "/srv/data", "depth": 3},
        client_session_id=session,
        correlation_id="report-2026-11",
        request_hash="0" * 64,
        phase=CallPhase.RUNNING,
        lease_token=HANDOFF_LEASE,
        lease_until=now + timedelta(hours=1),
        dispatched_at=now,
        runs=1,
        created_at=now,
        updated_at=now,
        deadline_at=now + timedelta(hours=1),
    )


def new_webhook(
    ids: IdGenerator,
    clock: Clock,
    *,
    url: str,
    session: str,
    include_result: bool = False,
    principal: Principal = PRINCIPAL,
) -> Webhook:
    now = clock.now()
    return Webhook(
        id=ids.new_webhook_id(),
        principal=principal,
        url=url,
        client_session_id=session,
        secrets=(WebhookSecret(value=SECRET),),
        include_result=include_result,
        created_at=now,
        updated_at=now,
    )


def sample_body() -> bytes:
    """The engine's body, about half a kilobyte."""
    clock = SystemClock()
    ids = IdGenerator(clock)
    running = running_call(ids, clock, session="session-7")
    ended = finished(
        running,
        completion_from_result(RESULT, is_error=False),
        now=clock.now(),
        result_retention_seconds=RETENTION_SECONDS,
    )
    event = build_call_event(EventName.CALL_FINISHED, ended, event_id=ids.new_event_id(), seq=1, now=clock.now())
    webhook = new_webhook(ids, clock, url="https://receiver.example/", session="session-7")
    return make_payload_builder().build_event_body(event, webhook, call=ended, watermark=LogPosition(0))


async def post_signed(session: aiohttp.ClientSession, clock: Clock, url: str, message_id: str, body: bytes) -> None:
    """Send one signed callback with aiohttp; raises for any status except 2xx."""
    headers = build_callback_headers(
        webhook_id="wh_benchmark", message_id=message_id, body=body, secrets=[SECRET], now=clock.now()
    )
    async with session.post(URL(url, encoded=True), headers=headers | ADDED_HEADERS, data=body) as response:
        await response.read()
        response.raise_for_status()


def bare_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar(), timeout=aiohttp.ClientTimeout()
    )


async def bare_loop(urls: Sequence[str], body: bytes, deliveries: int) -> Measured:
    """Sign and POST, `IN_FLIGHT` at a time: the baseline of the other variants."""
    clock = SystemClock()
    ids = IdGenerator(clock)
    left = iter(range(deliveries))

    async def send() -> None:
        for number in left:
            await post_signed(session, clock, urls[number % len(urls)], ids.new_event_id(), body)

    async with bare_session() as session, asyncio.TaskGroup() as senders:
        with measuring(deliveries) as measured:
            await asyncio.gather(*(senders.create_task(send()) for _ in range(IN_FLIGHT)))
    return measured
