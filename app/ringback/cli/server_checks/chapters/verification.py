"""How a server verifies a callback before it sends events there."""

import json
from typing import Final

from ringback.cli.check_report import CheckLevel
from ringback.cli.server_checks.arguments import make_reordered_arguments
from ringback.cli.server_checks.cases import Chapter, Deviation, Untestable, expect
from ringback.cli.server_checks.delivering import MARKER, UNCHALLENGED, delivered, failed_challenge, refused_challenge
from ringback.cli.server_checks.rules import LAST_ERRORS, require_error
from ringback.cli.server_checks.subject import OfferedEventType, ServerUnderTest
from ringback.cli.server_checks.subscribing import TTL_MILLISECONDS, other_url, subscription

CHAPTER: Final = Chapter("verification")
_SOURCE: Final = "Events (SEP-3415), Verification of callbacks"


@CHAPTER.must(
    "verification-challenge-echo",
    "A `verification` envelope with a `challenge` comes before the subscribe result",
    f"{_SOURCE}: the callback proves itself by echoing the challenge",
)
async def check_challenge(server: ServerUnderTest) -> str:
    callback = (await server.require(subscription)).callback
    if not callback.challenges:
        raise Deviation(UNCHALLENGED)
    challenge = callback.challenges[0].json.get("challenge")
    expect(isinstance(challenge, str) and bool(challenge), f"challenge is {challenge!r}")
    return "a challenge"


@CHAPTER.must(
    "verification-challenge-single-use",
    "Each challenge is another text",
    f"{_SOURCE}: a challenge is used once, so that an old response proves nothing",
)
async def check_single_use(server: ServerUnderTest) -> str:
    posts = [
        *(await server.require(subscription)).callback.challenges,
        *(await server.require(other_url)).callback.challenges,
    ]
    challenges = [str(post.json.get("challenge")) for post in posts]
    if len(challenges) < 2:  # noqa: PLR2004 - two differ
        raise Untestable("fewer than two challenges came")
    expect(len(set(challenges)) == len(challenges), f"challenges: {challenges}")
    return f"{len(challenges)} challenges"


@CHAPTER.must(
    "verification-failure-error",
    "A wrong echo makes `events/subscribe` answer CallbackEndpointError, `data.reason` is `challenge_failed`",
    f"{_SOURCE}: verification ends before the subscribe succeeds",
)
async def check_wrong_echo(server: ServerUnderTest) -> str:
    reply = (await server.observe(refused_challenge)).reply
    observed = require_error(reply, "CallbackEndpointError")
    expect(reply.data.get("reason") == "challenge_failed", f"data is {reply.error.get('data')!r}")
    return observed


@CHAPTER.must(
    "error-callback-endpoint-error",
    "A callback that fails its verification is refused with CallbackEndpointError and a known `data.reason`",
    "Events (SEP-3415), Errors: `data.reason` is a category of `lastError`",
)
async def check_reason(server: ServerUnderTest) -> str:
    reply = (await server.observe(failed_challenge)).reply
    observed = require_error(reply, "CallbackEndpointError")
    expect(reply.data.get("reason") in LAST_ERRORS, f"data is {reply.error.get('data')!r}")
    return f"{observed}; reason: {reply.data['reason']}"


@CHAPTER.must(
    "verification-no-raw-endpoint-responses",
    "Errors never repeat what the callback answered",
    f"{_SOURCE}: a server must not be a way to read private services",
)
async def check_no_raw_response(server: ServerUnderTest) -> str:
    for observation in (refused_challenge, failed_challenge):
        message = json.dumps((await server.require(observation)).reply.message)
        expect(MARKER not in message, f"the callback's body is in {message[:200]}")
    return "not repeated"


@CHAPTER.must(
    "verification-required-before-delivery",
    "A callback that failed its verification receives no event",
    f"{_SOURCE}: nothing is delivered before the callback is verified",
)
async def check_no_delivery(server: ServerUnderTest) -> str:
    await server.require(refused_challenge)
    count = len((await server.require(delivered)).unverified.callback.events)
    expect(count == 0, f"{count} events at a callback that failed its verification")
    return "no event"


@CHAPTER.should(
    "verification-cached-per-principal-url",
    "A verified callback needs no further challenge, whatever the arguments",
    f"{_SOURCE}: one handshake for each principal and URL",
)
async def check_cached(server: ServerUnderTest) -> str:
    made = await server.require(subscription)
    before = len(made.callback.challenges)
    if not before:
        raise Untestable(UNCHALLENGED)
    orders = make_reordered_arguments(made.event.input_schema, made.event.arguments) or ()
    for arguments in (made.event.arguments, *orders[:1]):
        await server.subscribe(
            OfferedEventType(made.event.descriptor, arguments), made.callback, ttlMs=TTL_MILLISECONDS
        )
    after = len(made.callback.challenges)
    expect(after == before, f"{after - before} further challenges for the same principal and URL")
    return "no further challenge"


CHAPTER.needs_fixture(
    CheckLevel.SHOULD,
    "verification-persisted-for-no-expiry",
    "The verification is kept with the subscriptions that survive restarts",
    f"{_SOURCE}: a restart needs no new handshake",
    missing="needs a restart of the server during the run",
)
CHAPTER.needs_fixture(
    CheckLevel.SHOULD,
    "server-identity-key-discovery",
    "A verifying key comes from an origin that the client already trusts",
    f"{_SOURCE}: never from the body",
    missing="optional, and no published text says yet which document has the keys",
)
