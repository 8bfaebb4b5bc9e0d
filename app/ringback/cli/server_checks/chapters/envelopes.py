"""Control envelopes, as far as a run sees them: the `verification`."""

from contextlib import suppress
from typing import Final

from ringback.cli.check_report import CheckLevel
from ringback.cli.server_checks.callbacks import SUBSCRIPTION_HEADER
from ringback.cli.server_checks.cases import Chapter, Untestable, expect
from ringback.cli.server_checks.delivering import delivered
from ringback.cli.server_checks.subject import ServerUnderTest
from ringback.cli.server_checks.subscribing import subscription

CHAPTER: Final = Chapter("envelopes")
_SOURCE: Final = "Events (SEP-3415), Control envelopes"
CONTROL_TYPES: Final = frozenset({"verification", "gap", "terminated"})


@CHAPTER.must(
    "envelope-signed-like-deliveries",
    "The `verification` envelope is signed with the subscription's secret, and has its id",
    f"{_SOURCE}: the same headers and signature as events",
)
async def check_signed_envelope(server: ServerUnderTest) -> str:
    made = await server.require(subscription)
    if not made.callback.challenges:
        raise Untestable("no control envelope came")
    post = made.callback.challenges[0]
    fault = post.find_signature_fault(made.callback.secret)
    expect(fault is None, f"{fault}")
    expect(
        post.header(SUBSCRIPTION_HEADER) == made.id, f"the id is {post.header(SUBSCRIPTION_HEADER)!r}, not {made.id!r}"
    )
    return "signed"


@CHAPTER.should(
    "envelope-webhook-id-format",
    "The webhook-id of a control envelope is `msg_<type>_<random>`",
    f"{_SOURCE}: it cannot be taken for an event's",
)
async def check_envelope_id(server: ServerUnderTest) -> str:
    challenges = (await server.require(subscription)).callback.challenges
    if not challenges:
        raise Untestable("no control envelope came")
    found = challenges[0].header("webhook-id")
    expect(found.startswith("msg_verification_") and len(found) > len("msg_verification_"), f"webhook-id is {found!r}")
    return found


@CHAPTER.must(
    "envelope-type-discriminator",
    "Bodies with a top-level `type` are known control envelopes; all others are occurrences",
    f"{_SOURCE}: `type` distinguishes them",
)
async def check_types(server: ServerUnderTest) -> str:
    await server.require(subscription)
    with suppress(Untestable):
        await server.require(delivered)
    posts = server.endpoint.posts
    if not posts:
        raise Untestable("nothing was sent to a callback")
    types = {post.json["type"] for post in posts if "type" in post.json}
    expect(types <= CONTROL_TYPES, f"types: {types}")
    bare = [post for post in posts if "type" not in post.json and "eventId" not in post.json]
    expect(not bare, "a body has neither `type` nor `eventId`")
    return f"{len(posts)} bodies"


CHAPTER.needs_fixture(
    CheckLevel.SHOULD,
    "envelope-gap",
    "A gap between refreshes sends `{type: gap, cursor}`",
    f"{_SOURCE}: the client goes on from this cursor by poll",
    missing="needs a subscription that lost events",
)
CHAPTER.needs_fixture(
    CheckLevel.SHOULD,
    "envelope-terminated",
    "A subscription that has ended sends `{type: terminated, error}`",
    f"{_SOURCE}: the client need not refresh it",
    missing="needs a revoked key or a removed event type",
)
