"""A direct call goes on from what it has saved, whatever becomes of its connection."""

from typing import Any

import pytest

from ringback.client.durable import MemoryRequestState
from ringback.client.durable.clock import SystemDurableClock
from ringback.client.durable.direct import calls
from ringback.client.durable.journal import CallJournal
from ringback.client.durable.local_call import LocalCall
from ringback.client.durable.mcp_target import McpServer
from ringback.client.durable.record import Completion, TaskPosition
from ringback.protocol.errors import ResponseLost
from tests.unit.client.durable.test_leases import RECORD

DONE = Completion(outcome="result", result={"content": []})


async def test_a_call_that_became_a_task_is_followed_although_its_connection_breaks_while_it_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal = CallJournal(MemoryRequestState())
    await journal.create(RECORD)
    call = LocalCall(RECORD, journal, SystemDurableClock(), holder="one")
    await call.acquire_lease()

    async def use_connection(*_: Any, **__: Any) -> None:
        if call.record.position is None:
            await call.save(position=TaskPosition(task_id="t1"))
            raise ResponseLost("The connection broke.")
        await call.complete(DONE)

    monkeypatch.setattr(calls, "use_connection", use_connection)
    await calls.DirectCalls(McpServer(url=RECORD.handle.target)).run_call(call)

    assert call.record.completion == DONE
