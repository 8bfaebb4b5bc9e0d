"""How often the store is written for one call: each write is a commit, and a fast tool is slower by every one of them."""

from pathlib import Path

import pytest

from ringback.bootstrap import Environment
from ringback.domain.ports import Store
from tests.support.application import running_application
from tests.support.counting_store import CommitCountingStore
from tests.support.upstreams import ControlledUpstream, make_http_config, serving


@pytest.mark.requirement("R13")
async def test_a_call_is_committed_when_it_is_accepted_sent_and_ended_and_not_once_more(tmp_path: Path) -> None:
    counting: list[CommitCountingStore] = []

    def count(store: Store) -> Store:
        counting.append(CommitCountingStore(store))
        return counting[0]

    async with (
        serving(ControlledUpstream().app()) as server,
        running_application(
            tmp_path, make_http_config(server.url), environment=Environment(wrap_store=count)
        ) as ringback,
    ):
        alice = await ringback.create_agent_client("alice")
        await alice.start_call("stage", "echo", {"text": "warm"}, wait_seconds=60)
        counting[0].written.clear()

        started = await alice.start_call("stage", "echo", {"text": "hello"}, wait_seconds=60)
        assert started.call.outcome == "result"

    written_for_call = [
        name for name in counting[0].written if name.startswith(("Calls.", "LeasedCall.", "CompletionBatcher."))
    ]
    assert written_for_call == [
        "Calls.start_call",
        "LeasedCall._write_dispatched",
        "CompletionBatcher._record_completions",
    ]
