"""What a run observes of events/subscribe: each function is one observation, made once."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from ringback.cli.server_checks.callbacks import CallbackRecorder
from ringback.cli.server_checks.cases import Untestable
from ringback.cli.server_checks.message_stream import Reply
from ringback.cli.server_checks.rules import METHOD_NOT_FOUND, parse_time
from ringback.cli.server_checks.subject import ABSENT, OfferedEventType, ServerUnderTest

SUBSCRIBE: Final = "events/subscribe"
UNSUBSCRIBE: Final = "events/unsubscribe"
TTL_MILLISECONDS: Final = 600_000
"""Ten minutes: longer than a run, within what servers grant."""
QUERY: Final = "mcp_event_subscription=a%2Fb&x=%c3%a9"
"""A query whose spelling shows whether the URL is kept byte for byte."""


@dataclass(frozen=True, slots=True)
class Subscription:
    event: OfferedEventType
    callback: CallbackRecorder
    reply: Reply

    @property
    def id(self) -> str:
        return str(self.reply.result.get("id"))

    @property
    def refresh_before(self) -> datetime | None:
        return parse_time(self.reply.result.get("refreshBefore"))


async def webhook_type(server: ServerUnderTest) -> OfferedEventType:
    return await server.choose_type("webhook")


async def first_subscribe(server: ServerUnderTest) -> Subscription:
    """The first events/subscribe of a run, well-formed in every way."""
    event = await server.require(webhook_type)
    callback = server.endpoint.add_callback(query=QUERY)
    return Subscription(event, callback, await server.subscribe(event, callback, ttlMs=TTL_MILLISECONDS))


async def subscription(server: ServerUnderTest) -> Subscription:
    """The subscription that most cases read. Raises `Untestable` if the server refused it."""
    made = await server.require(first_subscribe)
    if made.reply.has_result:
        return made
    if made.reply.code == METHOD_NOT_FOUND or server.endpoint.is_public:
        raise Untestable(f"{SUBSCRIBE} was refused: {made.reply.describe()}")
    raise Untestable(
        f"the server refuses callbacks to this machine ({made.reply.describe()}): let it allow http to 127.0.0.1, or give "
        "--callback-url"
    )


async def refreshed(server: ServerUnderTest) -> Subscription:
    """The same subscription again, with a new TTL and a new secret, and a made-up id."""
    made = await server.require(subscription)
    reply = await server.subscribe(made.event, made.callback, ttlMs=TTL_MILLISECONDS, id="sub_ringback_check")
    return Subscription(made.event, made.callback, reply)


async def other_url(server: ServerUnderTest) -> Subscription:
    """A subscription that differs only in its URL."""
    made = await server.require(subscription)
    callback = server.endpoint.add_callback()
    return Subscription(made.event, callback, await server.subscribe(made.event, callback, ttlMs=TTL_MILLISECONDS))


async def refused_secret(server: ServerUnderTest, secret: object) -> Reply:
    """A subscribe with this secret, at a URL of its own."""
    made = await server.require(subscription)
    return await server.subscribe(made.event, server.endpoint.add_callback(), delivery_secret=secret)


async def with_ttl(server: ServerUnderTest, ttl: Any) -> Subscription:
    """The subscription, refreshed with this `ttlMs`; ABSENT: without one."""
    made = await server.require(subscription)
    changes = {} if ttl is ABSENT else {"ttlMs": ttl}
    return Subscription(made.event, made.callback, await server.subscribe(made.event, made.callback, **changes))


async def other_principal(server: ServerUnderTest) -> Subscription:
    """The same name, arguments and URL, subscribed by another principal."""
    if server.other is None:
        raise Untestable("needs a second principal: give --other-header")
    made = await server.require(subscription)
    delivery = {"mode": "webhook", "url": made.callback.url, "secret": made.callback.secret}
    params = {"name": made.event.name, "arguments": made.event.arguments, "delivery": delivery, "cursor": None}
    return Subscription(made.event, made.callback, await server.subscribe_as(server.other, params))


def seconds_from_now(server: ServerUnderTest, instant: datetime) -> float:
    """How far an instant lies ahead; one without an offset is taken for UTC."""
    now = server.read_time()
    return (instant.replace(tzinfo=instant.tzinfo or now.tzinfo) - now).total_seconds()
