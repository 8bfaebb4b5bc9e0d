"""Callbacks that would let a client reach what only the server can reach."""

from typing import Final

from ringback.cli.check_report import CheckLevel
from ringback.cli.server_checks.cases import Chapter, Deviation, Untestable, expect
from ringback.cli.server_checks.delivering import delivered, redirected_challenge
from ringback.cli.server_checks.rules import ERROR_CODES
from ringback.cli.server_checks.subject import ServerUnderTest
from ringback.cli.server_checks.subscribing import subscription

CHAPTER: Final = Chapter("ssrf")
_SOURCE: Final = "Events (SEP-3415), Security"
_DNS: Final = "needs a name whose address changes between subscribe and delivery"
NON_ROUTABLE_HOSTS: Final = (
    "10.255.255.1",
    "192.168.255.1",
    "169.254.169.254",
    "0.0.0.0",  # noqa: S104 - a callback's host
    "100.64.0.1",
    "[fd00::1]",
    "[::ffff:10.0.0.1]",
    "[64:ff9b::a00:1]",
)
"""Private networks, the metadata service of clouds, this host, shared addresses, and IPv4 written as IPv6 and NAT64."""


@CHAPTER.must(
    "ssrf-no-redirects",
    "A redirect is a failure and is not followed, of a challenge as of an event",
    f"{_SOURCE}: redirects are never followed",
)
async def check_redirects(server: ServerUnderTest) -> str:
    made, target = await server.observe(redirected_challenge)
    expect(not target.posts, "the challenge was sent to the redirect's target")
    is_taken = made.reply.has_result and bool(made.callback.challenges)
    expect(not is_taken, "a redirected challenge was taken for an echo")
    try:
        round_ = await server.require(delivered)
    except Untestable:
        return "the challenge was not redirected"
    expect(not round_.redirect_target.posts, "the event was sent to the redirect's target")
    return "neither a challenge nor an event was redirected"


@CHAPTER.must(
    "ssrf-reject-non-routable",
    "Callbacks at addresses that are not globally routable are refused",
    f"{_SOURCE}: the registries of IANA, unless the operator configures otherwise",
)
async def check_non_routable(server: ServerUnderTest) -> str:
    made = await server.require(subscription)
    timed_out: list[str] = []
    for host in NON_ROUTABLE_HOSTS:
        reply = await server.subscribe(
            made.event, server.endpoint.add_callback(), delivery_url=f"https://{host}/callback"
        )
        expect(not reply.has_result, f"a callback at {host} was accepted")
        if reply.code in ERROR_CODES["CallbackEndpointError"] and reply.data.get("reason") == "timeout":
            timed_out.append(host)
    if timed_out:
        raise Deviation(f"a callback timed out at {', '.join(timed_out)}: was it called?")
    return f"{len(NON_ROUTABLE_HOSTS)} hosts"


@CHAPTER.must(
    "ssrf-validate-callback-url",
    "A callback at a loopback address is refused, and not called",
    f"{_SOURCE}: a server must not call itself",
)
async def check_loopback(server: ServerUnderTest) -> str:
    made = await server.require(subscription)
    if not server.endpoint.is_public:
        raise Untestable("this server was allowed to call this machine: run it without, with --callback-url")
    before = server.endpoint.unreadable_connections  # callbacks of earlier checks may be repeated meanwhile
    url = f"https://127.0.0.1:{server.endpoint.port}/callback"
    reply = await server.subscribe(made.event, server.endpoint.add_callback(), delivery_url=url)
    expect(server.endpoint.unreadable_connections == before, "the server connected to the loopback address")
    expect(not reply.has_result, "the callback was accepted")
    return reply.describe()


CHAPTER.needs_fixture(
    CheckLevel.MUST,
    "ssrf-validate-at-delivery-time",
    "The address is checked at each connect, and that address is connected to",
    f"{_SOURCE}: a name may have another address later",
    missing=_DNS,
)
CHAPTER.needs_fixture(
    CheckLevel.SHOULD,
    "verification-uses-ssrf-hardened-path",
    "Challenges go the same guarded way as events",
    f"{_SOURCE}: a challenge is a request to an untrusted URL too",
    missing=_DNS,
)
