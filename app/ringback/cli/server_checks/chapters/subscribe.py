"""events/subscribe: what it requires, and the identity of a subscription."""

from typing import Final

from ringback.cli.check_report import CheckLevel
from ringback.cli.server_checks.arguments import make_mistyped_arguments, make_reordered_arguments
from ringback.cli.server_checks.callbacks import generate_secret
from ringback.cli.server_checks.cases import Chapter, Deviation, Untestable, expect
from ringback.cli.server_checks.rules import ERROR_CODES, METHOD_NOT_FOUND, require_error
from ringback.cli.server_checks.subject import ABSENT, OfferedEventType, ServerUnderTest
from ringback.cli.server_checks.subscribing import (
    first_subscribe,
    other_principal,
    other_url,
    refreshed,
    refused_secret,
    subscription,
    webhook_type,
)

CHAPTER: Final = Chapter("subscribe")
_SOURCE: Final = "Events (SEP-3415), Webhook subscriptions"
HTTP_UNAUTHORIZED: Final = (401, 403)


@CHAPTER.must(
    "subscribe-webhook-only",
    "A well-formed `events/subscribe` for a type that offers webhook works",
    f"{_SOURCE}: a server whose types offer webhook implements events/subscribe",
)
async def check_implemented(server: ServerUnderTest) -> str:
    reply = (await server.observe(first_subscribe)).reply
    expect(reply.code != METHOD_NOT_FOUND, reply.describe())
    if not reply.has_result:
        raise Deviation(reply.describe())
    return reply.describe()


@CHAPTER.must(
    "subscribe-secret-required",
    "A subscribe without `delivery.secret` is refused with -32602",
    f"{_SOURCE}: the client supplies the secret",
)
async def check_secret_required(server: ServerUnderTest) -> str:
    return require_error(await refused_secret(server, ABSENT), "InvalidParams")


@CHAPTER.must(
    "subscribe-secret-format",
    "A secret without the prefix `whsec_` is refused with -32602",
    f"{_SOURCE}: `whsec_` and base64, as Standard Webhooks have it",
)
async def check_secret_format(server: ServerUnderTest) -> str:
    return require_error(await refused_secret(server, generate_secret().removeprefix("whsec_")), "InvalidParams")


@CHAPTER.must(
    "subscribe-secret-rejected",
    "Secrets of fewer than 24 or more than 64 bytes are refused with -32602",
    f"{_SOURCE}: 24 to 64 bytes, as Standard Webhooks have it",
)
async def check_secret_size(server: ServerUnderTest) -> str:
    require_error(await refused_secret(server, generate_secret(23)), "InvalidParams")
    return require_error(await refused_secret(server, generate_secret(65)), "InvalidParams")


@CHAPTER.must(
    "subscribe-secret-base64",
    "A secret that is not base64 is refused with -32602",
    f"{_SOURCE}: signatures of two libraries would differ",
)
async def check_secret_base64(server: ServerUnderTest) -> str:
    return require_error(await refused_secret(server, "whsec_" + "!*" * 20), "InvalidParams")


@CHAPTER.should(
    "subscribe-secret-unpadded",
    "A secret in base64 without padding is accepted",
    "Standard Webhooks: libraries differ in padding",
)
async def check_secret_unpadded(server: ServerUnderTest) -> str:
    reply = await refused_secret(server, generate_secret().rstrip("="))
    expect(reply.has_result, reply.describe())
    return "accepted"


@CHAPTER.must(
    "subscribe-url-non-https-rejected",
    "A callback with `http` is refused with -32602",
    f"{_SOURCE}: callbacks are https",
)
async def check_http_url(server: ServerUnderTest) -> str:
    return await _expect_invalid_url(server, "http://ringback-check.example/callback")


@CHAPTER.must(
    "subscribe-url-https-required",
    "URLs that are malformed or of another scheme are refused with -32602",
    f"{_SOURCE}: a callback is an https URL",
)
async def check_malformed_url(server: ServerUnderTest) -> str:
    for url in ("not a url", "ftp://ringback-check.example/callback", "https://"):
        await _expect_invalid_url(server, url)
    return "refused"


@CHAPTER.must(
    "subscribe-url-userinfo-fragment",
    "URLs with user information or a fragment are refused with -32602",
    "Events (SEP-3415), Security: a callback URL has neither",
)
async def check_userinfo(server: ServerUnderTest) -> str:
    await _expect_invalid_url(server, "https://user:password@ringback-check.example/callback")
    return await _expect_invalid_url(server, "https://ringback-check.example/callback#fragment")


@CHAPTER.must(
    "subscribe-arguments-checked",
    "Arguments of a wrong type are refused with -32602",
    f"{_SOURCE}: arguments are checked against `inputSchema`",
)
async def check_arguments(server: ServerUnderTest) -> str:
    event = (await server.require(subscription)).event
    wrong = make_mistyped_arguments(event.input_schema, event.arguments)
    if wrong is None:
        raise Untestable("the inputSchema of this event type forbids nothing")
    mistyped = OfferedEventType(event.descriptor, wrong)
    return require_error(await server.subscribe(mistyped, server.endpoint.add_callback()), "InvalidParams")


@CHAPTER.must(
    "subscribe-unknown-event",
    "A subscribe to an unknown name is refused with NotFound, and its callback is not called",
    f"{_SOURCE}: the event is looked up before anything is sent",
)
async def check_unknown_event(server: ServerUnderTest) -> str:
    event = await server.require(webhook_type)
    callback = server.endpoint.add_callback()
    unknown = OfferedEventType({**event.descriptor, "name": "ringback.check.no_such_event"}, {})
    observed = require_error(await server.subscribe(unknown, callback), "NotFound")
    expect(not callback.posts, f"{len(callback.posts)} requests to the callback")
    return observed


@CHAPTER.must(
    "subscribe-auth-required",
    "A subscribe without credentials is refused",
    f"{_SOURCE}: a webhook subscription belongs to a principal",
)
async def check_auth(server: ServerUnderTest) -> str:
    made = await server.require(subscription)
    if not server.connection.has_credentials:
        raise Deviation("this run has no credentials, and its subscription was accepted")
    anonymous = server.connection.without_credentials()
    delivery = {"mode": "webhook", "url": server.endpoint.add_callback().url, "secret": generate_secret()}
    params = {"name": made.event.name, "arguments": made.event.arguments, "delivery": delivery, "cursor": None}
    reply = await server.subscribe_as(anonymous, params)
    is_refused = reply.status in HTTP_UNAUTHORIZED or reply.code in ERROR_CODES["Forbidden"]
    expect(is_refused, f"HTTP {reply.status}: {reply.describe()}")
    return f"HTTP {reply.status}"


@CHAPTER.must(
    "subscribe-id-derived", "`id` is a non-empty string", f"{_SOURCE}: `id` is derived from the subscription's key"
)
async def check_id(server: ServerUnderTest) -> str:
    value = (await server.require(subscription)).reply.result.get("id", ABSENT)
    expect(isinstance(value, str) and bool(value), f"id is {value!r}")
    return f"id: {value}"


@CHAPTER.must(
    "subscribe-idempotent-upsert",
    "The same key again gives the same `id`, and a renewed TTL",
    f"{_SOURCE}: subscribing again refreshes",
)
async def check_upsert(server: ServerUnderTest) -> str:
    made, again = await server.require(subscription), await server.observe(refreshed)
    expect(again.reply.has_result, again.reply.describe())
    expect(again.id == made.id, f"{again.id} after {made.id}")
    if made.refresh_before and again.refresh_before:
        expect(again.refresh_before >= made.refresh_before, f"{again.refresh_before} after {made.refresh_before}")
    return again.id


@CHAPTER.must(
    "subscribe-id-not-an-input",
    "An `id` in the request is ignored or refused",
    f"{_SOURCE}: the id is a handle that the server derives",
)
async def check_id_not_input(server: ServerUnderTest) -> str:
    reply = (await server.require(refreshed)).reply
    expect(reply.result.get("id") != "sub_ringback_check", "the request's id was taken")
    return reply.describe()


@CHAPTER.must(
    "subscribe-key-composition",
    "Another URL is another subscription",
    f"{_SOURCE}: the key is principal, URL, name and canonical arguments",
)
async def check_key_url(server: ServerUnderTest) -> str:
    made, other = await server.require(subscription), await server.observe(other_url)
    expect(other.reply.has_result, other.reply.describe())
    expect(other.id != made.id, f"{made.id} for two URLs")
    return f"{made.id} and {other.id}"


@CHAPTER.must(
    "subscribe-key-immutable",
    "Other arguments are another subscription",
    f"{_SOURCE}: a part of the key is not changed, it addresses another subscription",
)
async def check_key_arguments(server: ServerUnderTest) -> str:
    made = await server.require(subscription)
    orders = make_reordered_arguments(made.event.input_schema, made.event.arguments)
    if orders is None or orders[0] == made.event.arguments:
        raise Untestable("no further arguments can be made from the inputSchema")
    other = await server.subscribe(OfferedEventType(made.event.descriptor, orders[0]), made.callback)
    if not other.has_result:
        raise Untestable(f"the arguments {orders[0]} were refused: {other.describe()}")
    expect(other.result.get("id") != made.id, f"{made.id} for {made.event.arguments} and for {orders[0]}")
    return "two ids"


@CHAPTER.must(
    "subscribe-key-canonical",
    "The order of the arguments does not matter",
    f"{_SOURCE}: arguments are canonical JSON (RFC 8785)",
)
async def check_key_order(server: ServerUnderTest) -> str:
    made = await server.require(subscription)
    orders = make_reordered_arguments(made.event.input_schema, made.event.arguments)
    if orders is None:
        raise Untestable("an order needs two arguments")
    replies = [await server.subscribe(OfferedEventType(made.event.descriptor, each), made.callback) for each in orders]
    if not all(reply.has_result for reply in replies):
        raise Untestable(f"the arguments were refused: {replies[0].describe()}")
    ids = [reply.result.get("id") for reply in replies]
    expect(ids[0] == ids[1], f"ids: {ids}")
    return "one id"


@CHAPTER.must(
    "subscribe-cross-tenant-isolation",
    "Two principals with the same name, arguments and URL have two subscriptions",
    f"{_SOURCE}: the principal is part of the key",
)
async def check_tenants(server: ServerUnderTest) -> str:
    made, other = await server.require(subscription), await server.observe(other_principal)
    expect(other.reply.has_result, other.reply.describe())
    expect(other.id != made.id, f"{made.id} for two principals")
    return "two ids"


@CHAPTER.must(
    "subscribe-response-cursor", "`cursor` is a string, null or absent", f"{_SOURCE}: the watermark of the subscription"
)
async def check_cursor(server: ServerUnderTest) -> str:
    value = (await server.require(subscription)).reply.result.get("cursor")
    expect(isinstance(value, str | None), f"cursor is {value!r}")
    return f"cursor: {value!r}"


@CHAPTER.must(
    "subscribe-response-truncated", "`truncated`, when there, is a boolean", f"{_SOURCE}: whether events were skipped"
)
async def check_truncated(server: ServerUnderTest) -> str:
    value = (await server.require(subscription)).reply.result.get("truncated", ABSENT)
    expect(value is ABSENT or isinstance(value, bool), f"truncated is {value!r}")
    return f"truncated: {value!r}"


@CHAPTER.should(
    "subscribe-response-complete",
    "The result has `id`, `refreshBefore` and `truncated`, also when they are null or false",
    "AI SDK refuses a result without them",
)
async def check_complete(server: ServerUnderTest) -> str:
    result = (await server.require(subscription)).reply.result
    missing = [name for name in ("id", "refreshBefore", "truncated") if name not in result]
    expect(not missing, f"{', '.join(missing)} absent")
    return ", ".join(result)


CHAPTER.needs_fixture(
    CheckLevel.SHOULD,
    "subscribe-refresh-reactivates",
    "A refresh makes a suspended subscription active again",
    f"{_SOURCE}: `active` is true after a refresh",
    missing="needs a subscription that the server has suspended, which takes an hour of failures",
)


async def _expect_invalid_url(server: ServerUnderTest, url: str) -> str:
    made = await server.require(subscription)
    reply = await server.subscribe(made.event, server.endpoint.add_callback(), delivery_url=url)
    return f"{url}: {require_error(reply, 'InvalidParams')}"
