"""Calls of tools behind a login, with servers that others wrote: the service in this process, all else on real sockets."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from ringback.bootstrap import Environment
from ringback.client import Call, Conflict, Forbidden, RingbackClient, Unavailable
from ringback.domain.ports import Store
from ringback.domain.principal import ALL_SCOPES
from ringback.domain.upstream_logins import SHARED_OWNER, CredentialsScope
from ringback.telemetry.logs import JsonFormatter
from tests.support.application import (
    SECRET,
    CallbackReceiver,
    RunningApplication,
    running_application,
    serving_callbacks,
)
from tests.support.engine import wait_until
from tests.support.login_peers.account_server import AccountServer
from tests.support.login_peers.browser import Browser
from tests.support.login_peers.kinds import PEERS
from tests.support.login_peers.peer import READ, WRITE, LoginPeer
from tests.support.login_peers.sdk_peer import serving_sdk_peer
from tests.support.stores import FullDisk
from tests.support.task_upstream import TaskUpstream
from tests.support.upstreams import make_http_config

REDIRECT_URI: Final = "http://127.0.0.1:9/callback"


@dataclass(slots=True)
class Stage:
    """A service with one upstream, `files`, that requires a login; its operator, and a receiver of callbacks."""

    peer: LoginPeer
    service: RunningApplication
    operator: RingbackClient
    phone: CallbackReceiver

    async def start_call(self, tool: str, correlation_id: str, *, agent: RingbackClient | None = None) -> Call:
        """Start a call of the operator, or of another agent."""
        started = await (agent or self.operator).start_call(
            "files", tool, {}, callback={"url": self.phone.url, "secret": SECRET}, correlation_id=correlation_id
        )
        return started.call

    async def sign_in(self, *, account: str = "ada", agent: RingbackClient | None = None) -> None:
        client = agent or self.operator
        started = await client.start_login("files", redirect_uri=REDIRECT_URI)
        async with Browser(account=account) as browser:
            redirected_to = await browser.approve(started.authorization_url)
        await client.complete_login("files", redirected_to)

    async def wait_until_waiting(self, call: Call, *, agent: RingbackClient | None = None) -> Call:
        """Wait for the callback that says that the call waits for a login."""
        callback = await self.phone.wait_for_callback(call.correlation_id or "")
        assert callback.name == "call.input_required"
        waiting = await (agent or self.operator).call(call.id)
        assert waiting.status == "input_required"
        assert list(waiting.input_requests) == ["ringback/login"]
        return waiting

    async def wait_for_text(self, call: Call, *, agent: RingbackClient | None = None) -> str:
        """The text of the result, which has also been sent to the receiver."""
        callback = await self.phone.wait_for_callback(call.correlation_id or "")
        assert callback.name == "call.finished"
        result = await (agent or self.operator).result(call.id)
        return str(result["content"][0]["text"])

    async def run_call(self, tool: str, correlation_id: str) -> str:
        return await self.wait_for_text(await self.start_call(tool, correlation_id))


@asynccontextmanager
async def running_stage(
    folder: Path, peer: LoginPeer, *, credentials: CredentialsScope = CredentialsScope.SHARED, **options: Any
) -> AsyncGenerator[Stage]:
    config = replace(make_http_config(peer.url, name="files"), credentials=credentials)
    async with serving_callbacks() as phone, running_application(folder, config, **options) as service:
        yield Stage(peer, service, await service.create_agent_client("operator", scopes=ALL_SCOPES), phone)


@pytest.mark.parametrize("kind", PEERS)
async def test_a_call_waits_rings_and_goes_on_after_the_login(tmp_path: Path, kind: str) -> None:
    async with PEERS[kind]() as peer, running_stage(tmp_path, peer) as stage:
        call = await stage.start_call("whoami", "first")
        await stage.wait_until_waiting(call)
        assert peer.list_tokens_of_calls("whoami") == []

        await stage.sign_in(account="ada")

        assert await stage.wait_for_text(call) in {"ada", READ}
        assert len(peer.list_tokens_of_calls("whoami")) == 1


@pytest.fixture
async def tools() -> AccountServer:
    return AccountServer()


@pytest.fixture
async def stage(tmp_path: Path, tools: AccountServer) -> AsyncGenerator[Stage]:
    """A service whose operator has signed in at the SDK's server as ada."""
    async with serving_sdk_peer(tools.app) as peer, running_stage(tmp_path, peer) as stage:
        await stage.sign_in(account="ada")
        yield stage


async def test_a_call_after_the_login_does_not_wait(stage: Stage) -> None:
    assert await stage.run_call("whoami", "first") == "ada"
    assert stage.peer.list_tokens_of_calls("whoami") == list(stage.peer.access_tokens)


async def test_one_refresh_serves_all_calls_whose_token_has_expired(stage: Stage) -> None:
    await stage.run_call("whoami", "first")
    stage.peer.expire_access_tokens()
    before = len(stage.peer.token_requests)

    calls = [await stage.start_call("whoami", f"call-{number}") for number in range(20)]
    texts = [await stage.wait_for_text(call) for call in calls]

    assert texts == ["ada"] * 20
    assert [form["grant_type"] for form in stage.peer.token_requests[before:]] == ["refresh_token"]


@pytest.mark.postgres_only
async def test_one_refresh_serves_the_calls_of_two_nodes(tmp_path: Path, tools: AccountServer) -> None:
    """The server accepts each refresh token once, so a second refresh at the same time would end the login."""
    async with serving_sdk_peer(tools.app) as peer, running_stage(tmp_path, peer) as stage:
        await stage.sign_in()
        config = make_http_config(peer.url, name="files")
        async with running_application(tmp_path, config) as other:
            second = await other.create_agent_client("operator", scopes=ALL_SCOPES)
            for number in range(3):
                peer.expire_access_tokens()
                before = len(peer.token_requests)
                agents = [stage.operator, second] * 5
                calls = await asyncio.gather(
                    *(
                        stage.start_call("whoami", f"call-{number}-{place}", agent=agent)
                        for place, agent in enumerate(agents)
                    )
                )
                assert [await stage.wait_for_text(call) for call in calls] == ["ada"] * 10
                assert len(peer.token_requests) == before + 1


async def test_calls_wait_for_a_new_login_once_the_refresh_is_refused(stage: Stage) -> None:
    await stage.run_call("whoami", "first")
    stage.peer.revoke_all_tokens()
    calls = [await stage.start_call("whoami", f"call-{number}") for number in range(5)]
    for call in calls:
        await stage.wait_until_waiting(call)

    await stage.sign_in(account="bob")

    assert [await stage.wait_for_text(call) for call in calls] == ["bob"] * 5
    assert len(stage.peer.list_tokens_of_calls("whoami")) == 6


async def test_a_tool_with_a_further_scope_waits_for_it_and_runs_once(stage: Stage, tools: AccountServer) -> None:
    stage.peer.tool_scopes["deploy"] = WRITE
    await stage.run_call("whoami", "first")
    call = await stage.start_call("deploy", "step-up")
    await stage.wait_until_waiting(call)
    assert await stage.run_call("whoami", "neighbour") == "ada"

    await stage.sign_in(account="ada")

    assert await stage.wait_for_text(call) == "ada"
    assert tools.deployed_by == ["ada"]
    (token,) = stage.peer.list_tokens_of_calls("deploy")
    assert set(stage.peer.access_tokens[token or ""].scopes) == {READ, WRITE}


async def test_calls_that_lack_a_scope_at_the_same_time_wait_for_one_login(stage: Stage) -> None:
    stage.peer.tool_scopes["deploy"] = WRITE
    await stage.run_call("whoami", "first")
    calls = await asyncio.gather(*(stage.start_call("deploy", f"call-{number}") for number in range(5)))
    for call in calls:
        await stage.wait_until_waiting(call)

    await stage.sign_in(account="ada")

    assert [await stage.wait_for_text(call) for call in calls] == ["ada"] * 5


async def test_a_login_that_the_user_denies_leaves_the_call_waiting(stage: Stage) -> None:
    stage.peer.revoke_all_tokens()
    call = await stage.start_call("whoami", "first")
    await stage.wait_until_waiting(call)

    with pytest.raises(Conflict):
        await stage.sign_in(account="nobody")
    assert (await stage.operator.call(call.id)).status == "input_required"

    await stage.sign_in(account="bob")
    assert await stage.wait_for_text(call) == "bob"


async def wait_until_revoked(peer: LoginPeer) -> None:
    """Wait until the server accepts none of the tokens that it granted."""

    async def is_revoked() -> bool:
        return not peer.access_tokens and not peer.refresh_tokens

    assert peer.token_requests
    await wait_until(is_revoked)


@pytest.mark.parametrize("unit", ["take_login", "_save_tokens"])
async def test_a_login_that_finds_the_disk_full_stores_no_tokens_and_the_user_signs_in_again(
    tmp_path: Path, tools: AccountServer, unit: str
) -> None:
    disks: list[FullDisk] = []

    def wrap(store: Store) -> Store:
        disks.append(FullDisk(store))
        return disks[-1]

    async with (
        serving_sdk_peer(tools.app) as peer,
        running_stage(tmp_path, peer, environment=Environment(wrap_store=wrap)) as stage,
    ):
        call = await stage.start_call("deploy", "first")
        await stage.wait_until_waiting(call)
        disks[0].full_at = f"LoginCompletion.{unit}.<locals>"
        with pytest.raises(Unavailable):
            await stage.sign_in(account="ada")
        assert await disks[0].read(lambda tx: tx.upstream_tokens.get("files", SHARED_OWNER)) is None
        assert (await stage.operator.call(call.id)).status == "input_required"

        if unit == "_save_tokens":
            await wait_until_revoked(peer)
        disks[0].full_at = None
        await stage.sign_in(account="bob")

        assert await stage.wait_for_text(call) == "bob"
    assert tools.deployed_by == ["bob"]


async def test_a_task_goes_on_from_its_handle_after_a_401_in_its_middle(tmp_path: Path) -> None:
    tasks = TaskUpstream()
    async with serving_sdk_peer(tasks.app) as peer, running_stage(tmp_path, peer) as stage:
        await stage.sign_in()
        call = await stage.start_call("work", "task")
        task = await tasks.wait_for_task(1)
        peer.revoke_all_tokens()
        await stage.wait_until_waiting(call)

        task.complete_task("done")
        await stage.sign_in()

        assert await stage.wait_for_text(call) == "done"
    assert tasks.side_effects == ["work"]


async def test_a_signed_out_upstream_gets_no_request_with_a_token(stage: Stage) -> None:
    await stage.run_call("whoami", "first")
    await stage.operator.end_login("files")
    stage.peer.received.clear()

    call = await stage.start_call("whoami", "second")
    await stage.wait_until_waiting(call)

    assert {request.token for request in stage.peer.received} <= {None}
    assert not stage.peer.access_tokens
    assert not stage.peer.refresh_tokens


async def test_a_shared_login_lets_the_calls_of_all_principals_go_on(tmp_path: Path, tools: AccountServer) -> None:
    async with serving_sdk_peer(tools.app) as peer, running_stage(tmp_path, peer) as stage:
        alice = await stage.service.create_agent_client("alice")
        call = await stage.start_call("whoami", "alice's", agent=alice)
        await stage.wait_until_waiting(call, agent=alice)
        with pytest.raises(Forbidden):
            await stage.sign_in(agent=alice)

        await stage.sign_in(account="ada")

        assert await stage.wait_for_text(call, agent=alice) == "ada"


async def test_two_principals_use_their_own_accounts_and_never_the_token_of_the_other(
    tmp_path: Path, tools: AccountServer
) -> None:
    async with (
        serving_sdk_peer(tools.app) as peer,
        running_stage(tmp_path, peer, credentials=CredentialsScope.PRINCIPAL) as stage,
    ):
        alice, bob = [await stage.service.create_agent_client(name) for name in ("alice", "bob")]
        hers, his = [
            await stage.start_call("whoami", name, agent=agent) for name, agent in (("hers", alice), ("his", bob))
        ]
        await stage.wait_until_waiting(hers, agent=alice)
        await stage.wait_until_waiting(his, agent=bob)

        await stage.sign_in(account="alice@example", agent=alice)
        assert await stage.wait_for_text(hers, agent=alice) == "alice@example"
        assert (await bob.call(his.id)).status == "input_required"
        await stage.sign_in(account="bob@example", agent=bob)
        assert await stage.wait_for_text(his, agent=bob) == "bob@example"

        texts = [
            await stage.wait_for_text(await stage.start_call("whoami", f"{name}-again", agent=agent), agent=agent)
            for name, agent in (("hers", alice), ("his", bob))
        ]
        assert texts == ["alice@example", "bob@example"]


def read_files(folder: Path) -> str:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file()).decode("latin-1")


@pytest.mark.sqlite_only("reads SQLite's files")
async def test_no_secret_of_a_login_is_shown_logged_sent_or_stored_in_the_open(
    tmp_path: Path, tools: AccountServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="ringback")
    async with serving_sdk_peer(tools.app) as peer, running_stage(tmp_path, peer) as stage:
        peer.tool_scopes["deploy"] = WRITE
        waiting = await stage.start_call("whoami", "first")
        await stage.wait_until_waiting(waiting)
        await stage.sign_in()
        await stage.wait_for_text(waiting)
        peer.expire_access_tokens()
        await stage.run_call("whoami", "second")
        further = await stage.start_call("deploy", "third")
        await stage.wait_until_waiting(further)
        await stage.sign_in()
        await stage.wait_for_text(further)
        shown = [str(await stage.operator.upstreams()), str(await stage.operator.call(further.id))]
        sent = [json.dumps(dict(callback.data), default=str) for callback in stage.phone.callbacks]
        stored = read_files(tmp_path)
        await stage.operator.end_login("files")

    assert len(peer.secrets) >= 10
    assert waiting.id in stored
    logged = "\n".join(JsonFormatter().format(record) for record in caplog.records)
    for name, text in {"shown": str(shown), "sent": str(sent), "stored": stored, "logged": logged}.items():
        assert [secret for secret in peer.secrets if secret in text] == [], name
