"""An installation moves from SQLite to PostgreSQL: its calls end, its callbacks arrive, and what clients hold still works."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ringback.domain.principal import DEFAULT_SCOPES
from ringback.receiver import ReceiverApp
from ringback.storage.copying.copier import CopyResult, copy_database
from tests.support.application import SECRET, running_application, wait_until_ended
from tests.support.limits import WAIT_SECONDS
from tests.support.postgres_databases import empty_database
from tests.support.upstreams import ControlledUpstream, make_http_config, serving

SQLITE = "ringback.db"
OWNER = "alice"


class ScriptedEndpoint:
    """A receiver that refuses callbacks with `status`, until that is None."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.refused = asyncio.Event()
        self.receiver = ReceiverApp([SECRET])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.status is not None:
            await Response(status_code=self.status)(scope, receive, send)
            self.refused.set()
        else:
            await self.receiver(scope, receive, send)


@pytest.fixture
async def postgres_url() -> AsyncGenerator[str]:
    async with empty_database() as url:
        yield url


async def copy(folder: Path, url: str) -> CopyResult:
    return await copy_database(folder / SQLITE, url, report=lambda _: None)


@pytest.mark.sqlite_only  # names its databases itself
@pytest.mark.requirement("R34")
async def test_calls_callbacks_cursors_and_tokens_go_on_after_the_move(tmp_path: Path, postgres_url: str) -> None:
    stage, endpoint = ControlledUpstream(), ScriptedEndpoint()
    sqlite_url = f"sqlite:///{tmp_path / SQLITE}"
    async with serving(stage.app()) as server, serving(endpoint) as phone:
        callback_url = f"http://127.0.0.1:{phone.port}/callbacks"
        upstream = replace(make_http_config(server.url), max_concurrent=1)  # one call runs, and the next one is queued
        async with running_application(tmp_path, upstream, database_url=sqlite_url) as ringback:
            key = await ringback.app.services.api_keys.create_key(OWNER, name="", scopes=DEFAULT_SCOPES, upstreams=None)
            agent = await ringback.client(api_key=key[1])
            await agent.register_webhook(callback_url, secret=SECRET, client_session_id="s1", retries="minutes")

            endpoint.status = 410
            dead = await agent.start_call("stage", "echo", {"n": 1}, client_session_id="s1", correlation_id="dead")
            await asyncio.wait_for(endpoint.refused.wait(), WAIT_SECONDS)
            endpoint.refused.clear()
            endpoint.status = 503
            late = await agent.start_call("stage", "echo", {"n": 2}, client_session_id="s1", correlation_id="late")
            await asyncio.wait_for(endpoint.refused.wait(), WAIT_SECONDS)
            running = await agent.start_call(
                "stage", "hold", {"n": 3}, client_session_id="s1", correlation_id="running"
            )
            await asyncio.wait_for(stage.wait_until_held(1), WAIT_SECONDS)
            later = await agent.start_call("stage", "echo", {"n": 4}, client_session_id="s1", correlation_id="later")
            before = await agent.poll_events()
            early = await copy(tmp_path, postgres_url)
        finished = await copy(tmp_path, postgres_url)
        keys = (tmp_path / f"{SQLITE}.key").read_text(encoding="ascii").strip()
        endpoint.status = None
        async with running_application(tmp_path, upstream, database_url=postgres_url, secret_keys=keys) as moved:
            agent = await moved.client(api_key=key[1])
            callbacks = [
                await endpoint.receiver.wait_for(correlation_id=name, timeout_seconds=WAIT_SECONDS)
                for name in ("late", "later", "running")
            ]
            (delivery,) = [each async for each in agent.deliveries(state="dead")]
            await agent.redeliver(delivery.id)
            callbacks.append(await endpoint.receiver.wait_for(correlation_id="dead", timeout_seconds=WAIT_SECONDS))
            resumed = await agent.resume(late.resume_token)
            since = await agent.poll_events(cursor=before.cursor)
            ended = await wait_until_ended(agent, later.call)

    assert (early.is_finished, finished.is_finished) == (False, True)
    assert [each.call_id for each in callbacks] == [late.call.id, later.call.id, running.call.id, dead.call.id]
    assert [each.outcome for each in callbacks] == ["result", "result", "unknown", "result"]
    assert delivery.call_id == dead.call.id
    assert (resumed.call.id, resumed.call.outcome) == (late.call.id, "result")
    assert [event.name for event in resumed.events] == ["call.finished"]
    assert ended.outcome == "result"
    assert {event.data["call_id"] for event in since.events} == {later.call.id, running.call.id}
    assert [each.arguments for each in stage.calls if each.name == "hold"] == [{"n": 3}]
