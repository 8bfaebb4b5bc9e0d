"""The upstream refuses the token of a call, and its refresh takes long: the call counts as unsent meanwhile."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ringback.domain.upstream_logins import CredentialsScope
from tests.interaction.logins.test_calls_behind_logins import Stage, running_stage
from tests.support.databases import query_rows
from tests.support.engine import wait_until
from tests.support.login_peers.account_server import AccountServer
from tests.support.login_peers.sdk_peer import serving_sdk_peer
from tests.support.upstreams import App, make_legacy_app


def read_dispatches(folder: Path) -> Sequence[tuple[Any, ...]]:
    """Of the calls that have not ended: whether each was sent, and its runs."""
    return query_rows(folder, "SELECT dispatched_at IS NOT NULL, runs FROM calls WHERE finished_at IS NULL")


async def hold_refresh(stage: Stage) -> None:
    """Let the next refresh wait until `issues_tokens` is set."""
    stage.peer.expire_access_tokens()
    stage.peer.issues_tokens.clear()


async def wait_for_refresh(stage: Stage, *, after: int) -> None:
    async def is_refreshing() -> bool:
        return len(stage.peer.token_requests) > after

    await wait_until(is_refreshing)


@pytest.mark.parametrize("is_legacy", [False, True], ids=["modern", "legacy"])
async def test_a_call_counts_as_unsent_during_the_refresh_and_runs_once_after_it(
    tmp_path: Path, *, is_legacy: bool
) -> None:
    """In a legacy session, the SDK sends the request in a task of its own."""
    tools = AccountServer()

    def make_app(**options: Any) -> App:
        return make_legacy_app(tools.app(**options)) if is_legacy else tools.app(**options)

    async with serving_sdk_peer(make_app) as peer, running_stage(tmp_path, peer) as stage:
        await stage.sign_in()
        await stage.run_call("whoami", "first")
        await hold_refresh(stage)
        before = len(peer.token_requests)
        call = await stage.start_call("whoami", "second")
        await wait_for_refresh(stage, after=before)

        refused = read_dispatches(tmp_path)
        peer.issues_tokens.set()
        await stage.wait_for_text(call)

        assert [tuple(map(int, row)) for row in refused] == [(0, 0)]
        assert ((await stage.operator.call(call.id)).runs, len(peer.list_tokens_of_calls("whoami"))) == (1, 2)


async def test_a_call_that_is_cancelled_during_its_refresh_never_runs_and_delays_no_other_principal(
    tmp_path: Path,
) -> None:
    tools = AccountServer()
    async with (
        serving_sdk_peer(tools.app) as peer,
        running_stage(tmp_path, peer, credentials=CredentialsScope.PRINCIPAL) as stage,
    ):
        alice, bob = [await stage.service.create_agent_client(name) for name in ("alice", "bob")]
        await stage.sign_in(account="ada", agent=alice)
        hers = await stage.start_call("whoami", "first", agent=alice)
        await stage.wait_for_text(hers, agent=alice)
        await hold_refresh(stage)
        before = len(peer.token_requests)
        call = await stage.start_call("deploy", "second", agent=alice)
        await wait_for_refresh(stage, after=before)

        cancelled = await alice.cancel(call.id)
        his = await stage.start_call("whoami", "his", agent=bob)
        await stage.wait_until_waiting(his, agent=bob)
        peer.issues_tokens.set()
        await stage.wait_for_text(await stage.start_call("whoami", "third", agent=alice), agent=alice)

        assert ((await alice.call(call.id)).outcome, tools.deployed_by) == ("cancelled", [])
        assert cancelled.id == call.id
