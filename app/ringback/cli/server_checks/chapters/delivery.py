"""What arrives at a callback, and what happens when it is refused."""

import asyncio
import json
from typing import Final

from ringback.cli.check_report import CheckLevel
from ringback.cli.server_checks.callbacks import SIGNATURE_HEADERS, SUBSCRIPTION_HEADER, ReceivedPost
from ringback.cli.server_checks.cases import Chapter, Untestable, expect
from ringback.cli.server_checks.delivering import ATTEMPTS_MAX, DeliveryRound, delivered
from ringback.cli.server_checks.message_stream import as_object
from ringback.cli.server_checks.rules import LAST_ERRORS, find_faults
from ringback.cli.server_checks.subject import ServerUnderTest
from ringback.cli.server_checks.subscribing import Subscription

CHAPTER: Final = Chapter("delivery")
_SOURCE: Final = "Events (SEP-3415), Delivery"
BODY_BYTES_MAX: Final = 262_144
"""256 KiB, of the whole body."""
TIMESTAMP_SECONDS_MAX: Final = 300
"""How far a timestamp may be from the time at which its request came, as receivers of Standard Webhooks have it."""


@CHAPTER.must(
    "delivery-implemented",
    "An event reaches a subscribed callback",
    f"{_SOURCE}: the server posts each event to the callback",
)
async def check_delivered(server: ServerUnderTest) -> str:
    return f"{len((await server.observe(delivered)).event_posts)} attempts to several callbacks"


@CHAPTER.must(
    "delivery-post-json",
    "Deliveries are POST with `application/json`",
    f"{_SOURCE}: POST, Content-Type application/json",
)
async def check_post_json(server: ServerUnderTest) -> str:
    for _, post in (await server.require(delivered)).posts:
        kind = post.header("content-type").partition(";")[0].strip().lower()
        expect(post.method == "POST" and kind == "application/json", f"{post.method} with {kind!r}")
    return "POST, application/json"


@CHAPTER.must(
    "delivery-standard-webhooks-headers",
    "Each delivery has webhook-id, webhook-timestamp in Unix seconds, and webhook-signature",
    f"{_SOURCE}, and Standard Webhooks: the three headers",
)
async def check_headers(server: ServerUnderTest) -> str:
    for _, post in (await server.require(delivered)).posts:
        missing = [name for name in SIGNATURE_HEADERS if not post.header(name)]
        expect(not missing, f"without {', '.join(missing)}")
        seconds = post.header("webhook-timestamp")
        came_at = server.read_time().timestamp() - (asyncio.get_running_loop().time() - post.at)
        expect(seconds.isdecimal(), f"webhook-timestamp is {seconds!r}")
        skew = int(seconds) - came_at
        expect(abs(skew) < TIMESTAMP_SECONDS_MAX, f"webhook-timestamp is {skew:+.0f} s from this machine's clock")
    return "all three"


@CHAPTER.must(
    "delivery-subscription-id-header",
    "`X-MCP-Subscription-Id` is the `id` of the subscribe result",
    f"{_SOURCE}: it distinguishes the subscriptions of one callback URL",
)
async def check_subscription_id(server: ServerUnderTest) -> str:
    for made, post in (await server.require(delivered)).event_posts:
        found = post.header(SUBSCRIPTION_HEADER)
        expect(found == made.id, f"{found!r} for {made.id!r}")
    return "the same id"


@CHAPTER.must(
    "delivery-signature-formula",
    "The signature is `v1,` and base64 of HMAC-SHA256 over id, timestamp and the raw body",
    "Standard Webhooks, with the secret of the subscription",
)
async def check_signature(server: ServerUnderTest) -> str:
    round_ = await server.require(delivered)
    for made, post in round_.event_posts:
        fault = post.find_signature_fault(*round_.list_secrets(made))
        expect(fault is None, f"{fault}")
    return f"{len(round_.event_posts)} valid signatures"


@CHAPTER.must(
    "delivery-body-is-occurrence",
    "The body is one event occurrence",
    f"{_SOURCE}: one event for each POST, the same object as in poll and push",
)
async def check_body(server: ServerUnderTest) -> str:
    for made, post in (await server.require(delivered)).event_posts:
        faults = find_faults(post.json, made.event.name, made.event.payload_schema)
        expect(not faults, "; ".join(faults))
    return "an occurrence"


@CHAPTER.must(
    "delivery-webhook-id-equals-event-id",
    "`webhook-id` is the body's `eventId`",
    "The design sketch, SEP-3415's draft and ChatGPT; AI SDK answers 400 to another id",
)
async def check_webhook_id(server: ServerUnderTest) -> str:
    for _, post in (await server.require(delivered)).event_posts:
        expect(
            post.header("webhook-id") == post.json.get("eventId"), f"{post.header('webhook-id')!r} for another eventId"
        )
    return "equal"


@CHAPTER.must(
    "delivery-same-id-as-poll",
    "Poll and webhook give the same event the same `eventId`",
    "Events (SEP-3415), Occurrences: `eventId` identifies the event, not its delivery",
)
async def check_same_id(server: ServerUnderTest) -> str:
    round_ = await server.require(delivered)
    polled = {each.get("eventId") for each in round_.polled}
    if not polled:
        raise Untestable("no event type offers both poll and webhook")
    sent = {post.json.get("eventId") for _, post in round_.event_posts}
    both = sent & polled  # of a busy event type, each side may have events that came earlier or later
    expect(bool(both), f"delivered {sent}, polled {polled}")
    return f"{len(both)} ids in both"


@CHAPTER.must(
    "delivery-url-unchanged",
    "The callback's URL is called byte for byte, with its query",
    f"{_SOURCE}: AI SDK recognises a subscription by its query alone",
)
async def check_url(server: ServerUnderTest) -> str:
    callback = (await server.require(delivered)).acknowledging.callback
    for post in callback.posts:
        expect(post.target.endswith(callback.target), f"{post.target} instead of {callback.target}")
    return callback.target


@CHAPTER.must(
    "delivery-retry-regenerates-signature",
    "A retry comes within seconds, with a timestamp and a signature of its own",
    f"{_SOURCE}: each attempt is signed anew",
)
async def check_retry(server: ServerUnderTest) -> str:
    round_ = await server.require(delivered)
    first, second = _require_retry(server, round_)
    times = [each.header("webhook-timestamp") for each in (first, second)]
    expect(times[0] != times[1] or second.at - first.at < 1, f"timestamps: {times}")
    fault = second.find_signature_fault(round_.failing_once.callback.secret)
    expect(fault is None, "the second signature is not valid")
    return f"after {second.at - first.at:.1f} s"


@CHAPTER.must(
    "delivery-retry-same-message",
    "A retry has the body and the webhook-id of the first attempt",
    f"{_SOURCE}, and Standard Webhooks: webhook-id identifies the message over its attempts",
)
async def check_retry_body(server: ServerUnderTest) -> str:
    first, second = _require_retry(server, await server.require(delivered))
    expect(first.body == second.body, "the bodies differ")
    expect(first.header("webhook-id") == second.header("webhook-id"), "the webhook-ids differ")
    return "the same message"


@CHAPTER.should(
    "delivery-dual-sign-on-rotation",
    "After a new secret, the older one signs as well for a while",
    f"{_SOURCE}: a receiver may not have stored the new secret yet",
)
async def check_dual_signature(server: ServerUnderTest) -> str:
    round_ = await server.require(delivered)
    post = _require_events(round_.rotated)[0]
    expect(post.find_signature_fault(round_.older_secret) is None, "the older secret does not sign")
    return f"{len(post.header('webhook-signature').split())} signatures"


@CHAPTER.must(
    "subscribe-refresh-replaces-secret",
    "After a refresh with a new secret, the new secret signs",
    "Events (SEP-3415), Webhook subscriptions: a refresh replaces the secret",
)
async def check_new_secret(server: ServerUnderTest) -> str:
    round_ = await server.require(delivered)
    fault = _require_events(round_.rotated)[0].find_signature_fault(round_.rotated.callback.secret)
    expect(fault is None, f"the new secret does not sign: {fault}")
    return "the new secret signs"


@CHAPTER.should(
    "delivery-body-size", "Bodies have at most 256 KiB", f"{_SOURCE}: the whole body has at most 262,144 bytes"
)
async def check_body_size(server: ServerUnderTest) -> str:
    largest = max(len(post.body) for _, post in (await server.require(delivered)).posts)
    expect(largest <= BODY_BYTES_MAX, f"{largest} bytes")
    return f"at most {largest} bytes"


@CHAPTER.must(
    "delivery-410-non-retryable", "After 410, the event is not sent again", f"{_SOURCE}: 410 is final for this delivery"
)
async def check_gone(server: ServerUnderTest) -> str:
    round_ = await server.require(delivered)
    return _expect_single_attempts(server, round_, round_.gone)


@CHAPTER.must(
    "delivery-413-non-retryable", "After 413, the event is not sent again", f"{_SOURCE}: it would be too large again"
)
async def check_too_large(server: ServerUnderTest) -> str:
    round_ = await server.require(delivered)
    return _expect_single_attempts(server, round_, round_.too_large)


@CHAPTER.should(
    "delivery-retries-bounded",
    f"A delivery has at most {ATTEMPTS_MAX} attempts",
    f"{_SOURCE}: a few attempts within a quarter of an hour",
)
async def check_bounded(server: ServerUnderTest) -> str:
    callbacks = [each.callback for each in (await server.require(delivered)).subscriptions]
    counts = [
        sum(post.header("webhook-id") == message for post in callback.events)
        for callback in callbacks
        for message in {post.header("webhook-id") for post in callback.events}
    ]
    expect(max(counts) <= ATTEMPTS_MAX, f"{max(counts)} attempts during this run")
    return f"at most {max(counts)} attempts during this run"


@CHAPTER.must(
    "unsubscribe-stops-delivery",
    "Nothing is sent to a callback after its unsubscribe",
    "Events (SEP-3415), Unsubscribing: the subscription has ended",
)
async def check_ended(server: ServerUnderTest) -> str:
    count = len((await server.require(delivered)).ended.callback.events)
    expect(count == 0, f"{count} events after the unsubscribe")
    return "no event"


@CHAPTER.should(
    "delivery-status-last-error-category",
    "`deliveryStatus.lastError` is one of the six categories or null",
    f"{_SOURCE}: never what the callback answered",
)
async def check_last_error(server: ServerUnderTest) -> str:
    round_ = await server.require(delivered)
    reply = await server.subscribe(round_.gone.event, round_.gone.callback)
    status = as_object(reply.result.get("deliveryStatus"))
    if not status:
        raise Untestable("no result had deliveryStatus")
    found = status.get("lastError")
    expect(found is None or found in LAST_ERRORS, f"lastError is {found!r}")
    return f"deliveryStatus: {json.dumps(status)}"


CHAPTER.needs_fixture(
    CheckLevel.SHOULD,
    "payload-minimality",
    "Payloads identify an event, and do not carry everything",
    "Events (SEP-3415), Payload: a client reads the rest with its own permission",
    missing="whether a payload is minimal is for a person to judge",
)


def _require_events(made: Subscription) -> list[ReceivedPost]:
    if not made.callback.events:
        raise Untestable("this callback received no event")
    return made.callback.events


def _require_retry(server: ServerUnderTest, round_: DeliveryRound) -> tuple[ReceivedPost, ReceivedPost]:
    """The first and the second attempt at the callback that failed once."""
    match round_.failing_once.callback.attempts:
        case [first, second, *_]:
            return first, second
        case _:
            raise Untestable(f"no second attempt at a failing callback within {server.timeouts.retry_seconds:.0f} s")


def _expect_single_attempts(server: ServerUnderTest, round_: DeliveryRound, made: Subscription) -> str:
    messages = [post.header("webhook-id") for post in _require_events(made)]
    expect(len(set(messages)) == len(messages), f"{len(messages)} attempts")
    _require_retry(server, round_)  # before this server's first retry, a single attempt says nothing
    return "one attempt"
