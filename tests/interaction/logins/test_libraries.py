"""The Python libraries show a person where to sign in, and go on after the login."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ringback.client import RingbackClient
from ringback.client.durable import DurableCaller, InputRequired, SQLiteRequestState
from tests.support.limits import WAIT_SECONDS
from tests.support.protected_upstream import LOGIN_URL, ProtectedService, running_protected
from tests.support.upstreams import ControlledUpstream


@pytest.fixture
async def protected(tmp_path: Path) -> AsyncGenerator[ProtectedService]:
    async with running_protected(tmp_path, ControlledUpstream().app()) as protected:
        yield protected


@pytest.fixture
async def client(protected: ProtectedService) -> RingbackClient:
    return await protected.ringback.create_agent_client("alice")


async def test_a_durable_caller_learns_where_to_sign_in_and_joins_after_the_login(
    protected: ProtectedService, client: RingbackClient, tmp_path: Path
) -> None:
    async with DurableCaller(client, state=SQLiteRequestState(tmp_path / "calls.db")) as caller:
        handle = await caller.request_call_tool(
            "echo", {"n": 1}, upstream="stage", start_timeout_seconds=WAIT_SECONDS, client_session_id="s1"
        )
        for _ in range(2):  # another join finds the login still missing
            with pytest.raises(InputRequired, match="requires a login: open") as asked:
                await caller.join_call_tool(handle)
            assert LOGIN_URL in str(asked.value)

        await protected.sign_in()
        result = await caller.join_call_tool(handle)
    assert result is not None
    assert result["content"][0]["text"] == '{"n": 1}'
