"""events/unsubscribe."""

from typing import Final

from ringback.cli.server_checks.cases import Chapter, Untestable, expect
from ringback.cli.server_checks.message_stream import Json, Reply
from ringback.cli.server_checks.rules import ERROR_CODES, require_error
from ringback.cli.server_checks.subject import ServerUnderTest, make_key
from ringback.cli.server_checks.subscribing import TTL_MILLISECONDS, UNSUBSCRIBE, Subscription, other_url, subscription

CHAPTER: Final = Chapter("unsubscribe")
_SOURCE: Final = "Events (SEP-3415), Unsubscribing"


async def ended_subscription(server: ServerUnderTest) -> tuple[Subscription, Reply]:
    """A subscription of its own, and the response to its end."""
    event = (await server.require(subscription)).event
    callback = server.endpoint.add_callback()
    made = Subscription(event, callback, await server.subscribe(event, callback, ttlMs=TTL_MILLISECONDS))
    expect(made.reply.has_result, made.reply.describe())
    return made, await _unsubscribe(server, made)


@CHAPTER.must(
    "unsubscribe-by-key",
    "A subscription ends by its key: name, arguments and URL, without `mode`",
    f"{_SOURCE}: the same key that subscribed",
)
async def check_by_key(server: ServerUnderTest) -> str:
    _, reply = await server.observe(ended_subscription)
    expect(reply.has_result, reply.describe())
    return reply.describe()


@CHAPTER.must(
    "unsubscribe-unknown-not-found",
    "An unknown key is refused with NotFound",
    f"{_SOURCE}: there is no such subscription; `data.kind` is `subscription`",
)
async def check_unknown(server: ServerUnderTest) -> str:
    made = await server.require(subscription)
    unused = Subscription(made.event, server.endpoint.add_callback(), made.reply)
    return require_error(await _unsubscribe(server, unused), "NotFound")


@CHAPTER.should(
    "unsubscribe-mode-tolerated",
    "`delivery.mode` is accepted as well",
    "AI SDK sends it, and keeps its record when it is refused",
)
async def check_mode(server: ServerUnderTest) -> str:
    event = (await server.require(subscription)).event
    callback = server.endpoint.add_callback()
    made = await server.subscribe(event, callback, ttlMs=TTL_MILLISECONDS)
    expect(made.has_result, made.describe())
    delivery = {"mode": "webhook", "url": callback.url}
    reply = await server.request(UNSUBSCRIBE, {"name": event.name, "arguments": event.arguments, "delivery": delivery})
    expect(reply.has_result, reply.describe())
    return reply.describe()


@CHAPTER.should(
    "unsubscribe-repeatable",
    "A second unsubscribe of a key that lived succeeds, or is refused with NotFound",
    "ChatGPT calls the method idempotent; the specification has NotFound",
)
async def check_repeat(server: ServerUnderTest) -> str:
    made, _ = await server.require(ended_subscription)
    reply = await _unsubscribe(server, made)
    expect(reply.has_result or reply.code in ERROR_CODES["NotFound"], reply.describe())
    return reply.describe()


@CHAPTER.must(
    "unsubscribe-foreign-not-found",
    "Another principal's unsubscribe of the key is refused with NotFound",
    f"{_SOURCE}: the principal is part of the key",
)
async def check_foreign(server: ServerUnderTest) -> str:
    made = await server.require(other_url)
    if server.other is None:
        raise Untestable("needs a second principal: give --other-header")
    return require_error(await server.other.request(UNSUBSCRIBE, _key_of(made)), "NotFound")


async def _unsubscribe(server: ServerUnderTest, made: Subscription) -> Reply:
    return await server.request(UNSUBSCRIBE, _key_of(made))


def _key_of(made: Subscription) -> Json:
    delivery = {"url": made.callback.url}
    return make_key({"name": made.event.name, "arguments": made.event.arguments, "delivery": delivery})
