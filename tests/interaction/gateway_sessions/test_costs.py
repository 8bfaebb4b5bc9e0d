"""What sessions and their streams cost: commits, and the work beside other sessions."""

import pytest

from ringback.bootstrap import Environment
from ringback.domain.ports import Store
from tests.interaction.gateway_sessions.conftest import RestartableRingback, open_session
from tests.support.counting_store import CommitCountingStore

pytestmark = pytest.mark.requirement("R13")


class CountedCommits:
    def __init__(self) -> None:
        self.stores: list[CommitCountingStore] = []

    def wrap(self, store: Store) -> Store:
        self.stores.append(CommitCountingStore(store))
        return self.stores[-1]

    def take(self) -> list[str]:
        """The units of work since the last time, without those of the workers."""
        written = [
            name
            for name in self.stores[-1].written
            if name.startswith(("McpSessions", "Calls.", "LeasedCall.", "CompletionBatcher.", "ToolAliases."))
        ]
        self.stores[-1].written.clear()
        return written


async def test_a_session_costs_one_commit_and_the_ids_of_its_streams_none(files: RestartableRingback) -> None:
    counted = CountedCommits()
    async with files.running(environment=Environment(wrap_store=counted.wrap), inline_wait_seconds=40.0) as running:
        warm = await open_session(running)
        await warm.request("tools/call", {"name": "echo", "arguments": {}})
        counted.take()

        session = await open_session(running)
        assert counted.take() == ["McpSessions.open_session"]
        for _ in range(5):
            await session.request("tools/list", {})
        assert counted.take() == []
        await session.request("tools/call", {"name": "echo", "arguments": {}})
        written = counted.take()

        over_rest = await running.application.create_agent_client("alice")
        await over_rest.start_call("stage", "echo", {}, wait_seconds=40)
        assert written == counted.take()


async def test_used_sessions_are_recorded_in_one_commit(files: RestartableRingback) -> None:
    counted = CountedCommits()
    async with files.running(environment=Environment(wrap_store=counted.wrap)) as running:
        sessions = [await open_session(running) for _ in range(5)]
        for session in sessions:
            await session.request("tools/list", {})
        manager = await running.find_manager("stage")
        counted.take()
        await manager.record_used_sessions()
        assert counted.take() == ["McpSessions._extend_batch"]
        await manager.record_used_sessions()
        assert counted.take() == []
