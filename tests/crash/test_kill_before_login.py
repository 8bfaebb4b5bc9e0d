"""`kill -9` between the refusal and the parking of a call, while it waits for a login, and right after the login.

The call runs once, with the token of the login.

the upstream refuses │ park │ …the user signs in… │ tokens and resumed calls │ dispatch │ finish

dispatch │ the upstream refuses the token of `tools/call` │ dispatch taken back │ refresh │ park, or dispatch │ …

Before the refresh, the store says that the upstream refused the request: the call counts as not sent, whether it may run again
or not.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.crash_checks import wait_for_finished_events, wait_until_final
from tests.support.engine import wait_until
from tests.support.login_peers.account_server import AccountServer
from tests.support.login_peers.browser import Browser
from tests.support.login_peers.peer import LoginPeer
from tests.support.login_peers.sdk_peer import serving_sdk_peer
from tests.support.processes import WAIT_SECONDS, ServiceProcess, post_unless_killed, running_process
from tests.support.receivers import NO_CONTENT, Receiver, respond_with, serving_receiver

PARK = "LeaseEnd._park.<locals>"
REFRESH = "StoredTokens.claim_refresh.<locals>"
"""The first unit of a refresh, after a refused token."""
SIGN_IN = "LoginCompletion._save_tokens.<locals>"
LOOPBACK = "http://127.0.0.1:9/callback"


async def start_call(running: ServiceProcess, receiver: Receiver, **options: str) -> str | None:
    body = {"upstream": "stage", "tool": "deploy", "callback": {"url": receiver.url()}, **options}
    started = await post_unless_killed(running.url, "/v1/calls", body, **{"Idempotency-Key": "one-and-only"})
    return None if started is None else str(started["call"]["id"])


async def wait_until_waiting(running: ServiceProcess, call_id: str) -> None:
    async with httpx.AsyncClient(base_url=running.url, timeout=WAIT_SECONDS) as client:

        async def is_waiting() -> bool:
            return (await client.get(f"/v1/calls/{call_id}")).json()["status"] == "input_required"

        await wait_until(is_waiting)


async def sign_in(running: ServiceProcess) -> dict[str, Any] | None:
    """Sign in with a browser; None if the service died meanwhile."""
    started = await post_unless_killed(running.url, "/v1/upstreams/stage/login", {"redirect_uri": LOOPBACK})
    assert started is not None
    async with Browser(account="ada") as browser:
        redirected_to = await browser.approve(started["authorization_url"])
    return await post_unless_killed(running.url, "/v1/upstreams/stage/login/complete", {"redirected_to": redirected_to})


async def run_to_the_end(
    running: ServiceProcess, receiver: Receiver, call_id: str, stage: AccountServer, peer: LoginPeer
) -> None:
    call = await wait_until_final(running, call_id)
    events = await wait_for_finished_events(running, receiver, call_id)
    finished = [each for each in events.values() if each["name"] == "call.finished"]
    assert (call["outcome"], call["runs"], len(finished)) == ("result", 1, 1)
    assert stage.deployed_by == ["ada"]
    assert len(peer.list_tokens_of_calls("deploy")) == 1


@pytest.mark.parametrize(("unit", "after"), [(PARK, False), (PARK, True), (SIGN_IN, True)])
async def test_a_call_that_waits_for_a_login_outlives_a_kill(unit: str, *, after: bool, tmp_path: Path) -> None:
    dies_after_login = unit == SIGN_IN
    stage = AccountServer()
    async with serving_sdk_peer(stage.app) as peer, serving_receiver(respond_with(NO_CONTENT)) as receiver:
        spec: dict[str, Any] = {"folder": str(tmp_path), "upstream": peer.url}
        step: dict[str, Any] = {"unit": unit, "after": after}
        async with running_process(**spec, **step) as doomed:
            call_id = await start_call(doomed, receiver)
            if dies_after_login:
                assert call_id is not None
                await wait_until_waiting(doomed, call_id)
                assert await sign_in(doomed) is None
            assert await doomed.wait_until_dead() == -9

        async with running_process(**spec) as revived:
            call_id = call_id or await start_call(revived, receiver)
            assert call_id is not None
            if not dies_after_login:
                await wait_until_waiting(revived, call_id)
                assert await sign_in(revived) is not None
            await run_to_the_end(revived, receiver, call_id, stage, peer)


@asynccontextmanager
async def killed_after_refusal(
    folder: Path, peer: LoginPeer, receiver: Receiver, *, unit: str, after: bool, **options: str
) -> AsyncGenerator[tuple[ServiceProcess, str]]:
    """The next process and the call, whose `tools/call` was refused in a session that worked, just before the kill."""
    spec: dict[str, Any] = {"folder": str(folder), "upstream": peer.url}
    async with running_process(**spec, unit=unit, after=after) as doomed:
        assert await sign_in(doomed) is not None
        body = {"upstream": "stage", "tool": "whoami", "wait_seconds": 45}
        worked = await post_unless_killed(doomed.url, "/v1/calls", body)
        assert worked is not None
        assert worked["call"]["outcome"] == "result"
        peer.revoke_all_tokens()
        call_id = await start_call(doomed, receiver, **options)
        assert await doomed.wait_until_dead() == -9
    assert [each.status for each in peer.received if each.tool == "deploy"] == [401]
    async with running_process(**spec) as revived:
        call_id = call_id or await start_call(revived, receiver, **options)  # the kill came before the response
        assert call_id is not None
        yield revived, call_id


@pytest.mark.parametrize(
    ("unit", "after", "rerun_policy"), [(PARK, True, "never"), (REFRESH, False, "always"), (REFRESH, False, "never")]
)
async def test_a_call_that_was_refused_before_a_kill_waits_and_its_tool_runs_once(
    unit: str, *, after: bool, rerun_policy: str, tmp_path: Path
) -> None:
    stage = AccountServer()
    async with (
        serving_sdk_peer(stage.app) as peer,
        serving_receiver(respond_with(NO_CONTENT)) as receiver,
        killed_after_refusal(tmp_path, peer, receiver, unit=unit, after=after, rerun_policy=rerun_policy) as killed,
    ):
        revived, call_id = killed
        await wait_until_waiting(revived, call_id)
        assert await sign_in(revived) is not None
        await run_to_the_end(revived, receiver, call_id, stage, peer)
