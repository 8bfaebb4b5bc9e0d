"""`kill -9` between the refusal and the parking of a call, while it waits for a login, and right after the login.

The call runs once, with the token of the login.

the upstream refuses │ park │ …the user signs in… │ tokens and resumed calls │ dispatch │ finish
"""

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

PARK = "LeasedCall._park.<locals>"
SIGN_IN = "LoginCompletion._save_tokens.<locals>"
LOOPBACK = "http://127.0.0.1:9/callback"


async def start_call(running: ServiceProcess, receiver: Receiver) -> str | None:
    body = {"upstream": "stage", "tool": "deploy", "callback": {"url": receiver.url()}}
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
