"""Large results are read one at a time for each principal."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

from ringback.domain.call import Call
from ringback.domain.ports import Store
from ringback.domain.principal import Principal
from ringback.services.calls.call_reads import ResultReader
from ringback.services.limits.unread_responses import LARGE_RESPONSE_BYTES, ResponseMemory, UnreadResponses

ALICE, BOB = Principal("alice"), Principal("bob")
RESULT = b"x" * LARGE_RESPONSE_BYTES


@dataclass(slots=True)
class LargeCall:
    id: str
    principal: Principal
    result_bytes: int = len(RESULT)

    @property
    def result_sha256(self) -> str:
        return self.id


@dataclass(slots=True)
class SlowStore:
    """Counts the scans of each principal that run at once."""

    running: Counter[Principal] = field(default_factory=Counter[Principal])
    most: Counter[Principal] = field(default_factory=Counter[Principal])
    reads: int = 0
    may_end: asyncio.Event = field(default_factory=asyncio.Event)

    async def scan(self, principal: Principal, work: Any) -> bytes:  # noqa: ARG002 - the port's signature
        self.reads += 1
        self.running[principal] += 1
        self.most[principal] = max(self.most[principal], self.running[principal])
        await self.may_end.wait()
        self.running[principal] -= 1
        return RESULT


async def test_a_principal_reads_one_large_result_at_a_time_beside_another_one_and_each_result_once() -> None:
    store, responses = SlowStore(), UnreadResponses()
    reader = ResultReader(store=cast("Store", store))
    calls = [LargeCall(f"call_{number % 4}", ALICE) for number in range(20)] + [LargeCall("call_b", BOB)]
    memories = [ResponseMemory(responses) for _ in calls]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(reader.read_large_result(cast("Call", call), memory))
            for call, memory in zip(calls, memories, strict=True)
        ]
        for _ in range(5):
            await asyncio.sleep(0)
        assert store.running == {ALICE: 1, BOB: 1}
        store.may_end.set()

    assert all(task.result() == RESULT for task in tasks)
    assert (store.reads, store.most) == (5, {ALICE: 1, BOB: 1})
