"""How often the store is used for one call: each write is a commit, and a fast tool is slower by every one of them."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.bootstrap import Environment
from ringback.domain.ports import Store
from ringback.services import long_polling
from tests.support.api_server import serving_api
from tests.support.application import RunningApplication, running_application
from tests.support.counting_store import CommitCountingStore
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, LegacyClientSession, ModernClient, legacy_session
from tests.support.upstreams import ControlledUpstream, make_http_config, serving

PARTS_OF_A_CALL = ("Calls.", "LeasedCall.", "CompletionBatcher.")
ACCEPTED_AND_ENDED = ["Calls.start_call", "CompletionBatcher._record_completions"]
ACCEPTED_SENT_AND_ENDED = ["Calls.start_call", "LeasedCall._write_dispatched", "CompletionBatcher._record_completions"]


@pytest.fixture(autouse=True)
def only_signals_end_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a call may take longer than the interval at which its waiting client reads it again."""
    monkeypatch.setattr(long_polling, "POLL_INTERVAL_SECONDS", WAIT_SECONDS)


@asynccontextmanager
async def running_counted(
    folder: Path, stage: ControlledUpstream, **settings: Any
) -> AsyncGenerator[tuple[RunningApplication, CommitCountingStore]]:
    counting: list[CommitCountingStore] = []

    def count(store: Store) -> Store:
        counting.append(CommitCountingStore(store))
        return counting[0]

    environment = Environment(wrap_store=count)
    async with (
        serving(stage.app()) as server,
        running_application(folder, make_http_config(server.url), environment=environment, **settings) as ringback,
    ):
        yield ringback, counting[0]


def writes_of_calls(store: CommitCountingStore) -> Sequence[str]:
    return [name for name in store.written if name.startswith(PARTS_OF_A_CALL)]


def reads_of_calls(store: CommitCountingStore) -> Sequence[str]:
    return [name for name in store.read_names if name.startswith(PARTS_OF_A_CALL)]


@pytest.mark.requirement("R13")
async def test_a_call_whose_client_waits_is_committed_when_it_is_sent_and_when_it_ends(tmp_path: Path) -> None:
    async with running_counted(tmp_path, ControlledUpstream()) as (ringback, store):
        alice = await ringback.create_agent_client("alice")
        await alice.start_call("stage", "echo", {"text": "warm"}, wait_seconds=60)
        store.clear()

        started = await alice.start_call("stage", "echo", {"text": "hello"}, wait_seconds=60)
        assert started.call.outcome == "result"

    assert writes_of_calls(store) == ACCEPTED_AND_ENDED
    assert reads_of_calls(store) == ["Calls.start_call"]  # looks up the idempotency key


@pytest.mark.requirement("R13")
async def test_a_call_that_is_accepted_at_once_is_committed_before_it_is_sent(tmp_path: Path) -> None:
    async with running_counted(tmp_path, ControlledUpstream()) as (ringback, store):
        alice = await ringback.create_agent_client("alice")
        await alice.start_call("stage", "echo", {"text": "warm"}, wait_seconds=60)
        store.clear()

        started = await alice.start_call("stage", "echo", {"text": "hello"})
        await alice.wait(started.call.id)

    assert writes_of_calls(store) == ACCEPTED_SENT_AND_ENDED


@pytest.mark.requirement("R14")
async def test_a_call_of_an_mcp_client_is_committed_twice_and_never_read(tmp_path: Path) -> None:
    async with (
        running_counted(tmp_path, ControlledUpstream(), auth="off", allowed_hosts=("127.0.0.1",)) as (ringback, store),
        serving_api(ringback.app.api) as url,
        httpx.AsyncClient(timeout=WAIT_SECONDS) as http,
        legacy_session(http, f"{url}/mcp/stage") as session,
    ):
        for client in (ModernClient(http, f"{url}/mcp/stage"), session):
            await call_echo(client)
            store.clear()

            result = await call_echo(client)

            assert result["content"]
            assert (writes_of_calls(store), reads_of_calls(store)) == (ACCEPTED_AND_ENDED, [])


async def call_echo(client: ModernClient | LegacyClientSession) -> Json:
    declare: Any = {"declare": {}} if isinstance(client, ModernClient) else {}
    return await client.request("tools/call", {"name": "echo", "arguments": {"text": "hello"}}, **declare)
