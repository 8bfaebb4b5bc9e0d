"""How long a subscription is granted."""

from typing import Any, Final

from ringback.cli.check_report import CheckLevel
from ringback.cli.server_checks.cases import Chapter, Deviation, expect
from ringback.cli.server_checks.rules import parse_time
from ringback.cli.server_checks.subject import ABSENT, ServerUnderTest
from ringback.cli.server_checks.subscribing import TTL_MILLISECONDS, seconds_from_now, subscription, with_ttl

CHAPTER: Final = Chapter("ttl")
_SOURCE: Final = "Events (SEP-3415), TTL"
SLACK_SECONDS: Final = 60.0
"""Between the clocks of two machines, and for rounding up."""
THIRTY_DAYS_MILLISECONDS: Final = 30 * 24 * 3600 * 1000
_RESTART: Final = "needs a restart of the server during the run"


@CHAPTER.must(
    "ttl-refresh-before-lte-suggestion",
    "`refreshBefore` is an ISO time, at most the suggested TTL ahead",
    f"{_SOURCE}: the grant is at most the suggestion, except for a floor",
)
async def check_suggestion(server: ServerUnderTest) -> str:
    made = await server.require(subscription)
    value = made.reply.result.get("refreshBefore", ABSENT)
    instant = parse_time(value)
    expect(instant is not None, f"refreshBefore is {value!r}")
    ahead = seconds_from_now(server, instant) if instant else 0
    expect(ahead > -SLACK_SECONDS, f"refreshBefore has passed {-ahead:.0f} s ago")
    if ahead > TTL_MILLISECONDS / 1000 + SLACK_SECONDS:
        raise Deviation(f"{ahead:.0f} s for a suggestion of {TTL_MILLISECONDS // 1000} s; is this the server's floor?")
    return f"{ahead:.0f} s for a suggestion of {TTL_MILLISECONDS // 1000} s"


@CHAPTER.should(
    "ttl-refresh-before-offset",
    "`refreshBefore` has an offset, such as Z",
    f"{_SOURCE}: an instant, not a local time; AI SDK refuses a time without an offset",
)
async def check_offset(server: ServerUnderTest) -> str:
    value = (await server.require(subscription)).reply.result.get("refreshBefore", ABSENT)
    instant = parse_time(value)
    expect(instant is None or instant.tzinfo is not None, f"refreshBefore is {value!r}")
    return f"refreshBefore: {value}"


@CHAPTER.must(
    "ttl-no-rejection-path",
    "1000 ms and 30 days are both accepted, and clamped",
    f"{_SOURCE}: a suggestion is never refused",
)
async def check_no_rejection(server: ServerUnderTest) -> str:
    granted = [await _grant(server, ttl) for ttl in (1000, THIRTY_DAYS_MILLISECONDS)]
    return f"refreshBefore: {' and '.join(str(each) for each in granted)}"


@CHAPTER.must(
    "ttl-omitted-means-default",
    "Without `ttlMs`, the grant is a finite default",
    f"{_SOURCE}: an omitted TTL is the server's default",
)
async def check_default(server: ServerUnderTest) -> str:
    value = await _grant(server, ABSENT)
    expect(parse_time(value) is not None, f"refreshBefore is {value!r}")
    return f"refreshBefore: {value}"


@CHAPTER.must(
    "ttl-null-only-when-requested",
    "`refreshBefore` is null only for `ttlMs: null`",
    f"{_SOURCE}: no expiry is granted only to a client that asked for it",
)
async def check_null(server: ServerUnderTest) -> str:
    asked = await _grant(server, None)
    expect(asked is None or parse_time(asked) is not None, f"refreshBefore is {asked!r} for ttlMs: null")
    finite = [await _grant(server, ttl) for ttl in (ABSENT, TTL_MILLISECONDS)]
    expect(None not in finite, f"refreshBefore is {finite} for an omitted TTL and for a number")
    return f"{asked!r} for null; else {finite[0]!r}"


CHAPTER.needs_fixture(
    CheckLevel.SHOULD,
    "ttl-long-grant-retained",
    "What was granted survives restarts",
    f"{_SOURCE}: a long grant is kept with its verification",
    missing=_RESTART,
)
CHAPTER.needs_fixture(
    CheckLevel.SHOULD,
    "ttl-no-expiry-persisted",
    "Subscriptions without expiry survive restarts",
    f"{_SOURCE}: they are kept with their verification",
    missing=_RESTART,
)
CHAPTER.needs_fixture(
    CheckLevel.SHOULD,
    "ttl-no-expiry-gc-terminated",
    "A subscription without expiry that is dropped after lasting failure gets a `terminated` envelope",
    f"{_SOURCE}: the client learns that it has ended",
    missing="needs lasting failure of a callback",
)


async def _grant(server: ServerUnderTest, ttl: Any) -> Any:
    reply = (await with_ttl(server, ttl)).reply
    expect(reply.has_result, f"ttlMs {ttl!r}: {reply.describe()}")
    return reply.result.get("refreshBefore", ABSENT)
