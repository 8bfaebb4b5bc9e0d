"""Two nodes that start and complete logins to upstreams at the same time."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit

import pytest

from ringback.attended_calls import AttendedCalls
from ringback.domain.clock import Clock
from ringback.domain.errors import QuotaExceeded, UnknownLogin
from ringback.domain.ids import IdGenerator
from ringback.domain.upstream_logins import CredentialsScope
from ringback.measurements import Measurements
from ringback.notifier.fan_out import FanOut
from ringback.notifier.payload import PayloadBuilder
from ringback.notifier.recorder import Recorder
from ringback.notifier.resume_tokens import CallResumeTokens
from ringback.post_commit import DeliveryHandoff
from ringback.services.logins.login_completion import CompletedLogin
from ringback.services.logins.login_waits import LoginWaits
from ringback.services.logins.upstream_logins import OPEN_LOGINS_MAX, LoginConfig, StartedLogin, UpstreamLogins
from ringback.signing.resume_token import ResumeTokenCodec
from ringback.upstreams.catalog.tool_catalog import UpstreamToolCatalog
from ringback.upstreams.connection_directory import ConnectionDirectory
from tests.support.clock import OffsetClock
from tests.support.fixed_upstreams import FakeUpstreamConnection
from tests.support.interleaving import CALLER, Node, Nodes, open_nodes
from tests.support.login_flow import CODE, ScriptedLoginFlow

PUBLIC_URL: Final = "https://ringback.example"


@pytest.fixture
def clock() -> OffsetClock:
    """The machine's time: the clock of the other tests jumps while nothing runs, and logins expire."""
    return OffsetClock()


@pytest.fixture
async def nodes(tmp_path: Path, clock: OffsetClock) -> AsyncGenerator[Nodes]:
    async with open_nodes(tmp_path, clock) as opened:
        yield opened


def make_logins(node: Node, flow: ScriptedLoginFlow, clock: Clock) -> UpstreamLogins:
    tokens = CallResumeTokens(ResumeTokenCodec([b"k" * 32], audience="ringback"), result_retention_seconds=1.0)
    ids = IdGenerator(clock)
    payloads = PayloadBuilder(tokens=tokens, public_url=PUBLIC_URL)
    recorder = Recorder(
        ids=ids,
        fan_out=FanOut(ids=ids, payloads=payloads, delivery_handoff=DeliveryHandoff()),
        attended_calls=AttendedCalls(),
        measurements=Measurements(),
        result_retention_seconds=1.0,
    )
    connections = {"mine": FakeUpstreamConnection("mine", CredentialsScope.PRINCIPAL)}
    return UpstreamLogins(
        store=node.store,
        clock=clock,
        ids=ids,
        catalog=UpstreamToolCatalog(ConnectionDirectory(cast("Any", connections))),
        flow=flow,
        waits=LoginWaits(recorder=recorder, public_url=PUBLIC_URL),
        lifecycle=node.services.lifecycle,
        config=LoginConfig(public_url=PUBLIC_URL),
    )


async def test_of_two_nodes_one_exchanges_the_code_of_a_login(nodes: Nodes, clock: OffsetClock) -> None:
    flow = ScriptedLoginFlow()
    started = await make_logins(nodes.first, flow, clock).start_login(CALLER, "mine")
    state = parse_qs(urlsplit(started.authorization_url).query)["state"][0]

    async def complete(node: Node) -> CompletedLogin:
        return await make_logins(node, flow, clock).complete_login(CALLER, "mine", f"?state={state}&code={CODE}")

    first, second = await nodes.interleave(complete, complete)

    assert isinstance(first, CompletedLogin)
    assert isinstance(second, UnknownLogin)
    assert flow.codes == [CODE]


async def test_two_nodes_start_no_more_logins_than_a_principal_may_have(nodes: Nodes, clock: OffsetClock) -> None:
    flow = ScriptedLoginFlow()
    logins = make_logins(nodes.first, flow, clock)
    for _ in range(OPEN_LOGINS_MAX - 1):
        await logins.start_login(CALLER, "mine")

    async def start(node: Node) -> StartedLogin:
        return await make_logins(node, flow, clock).start_login(CALLER, "mine")

    first, second = await nodes.interleave(start, start)

    assert isinstance(first, StartedLogin)
    assert isinstance(second, QuotaExceeded)
