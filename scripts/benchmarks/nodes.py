"""`scripts/bench nodes`: one, two and four processes on one PostgreSQL, and the way from one node to another.

- `ends`: the nodes end calls; a transaction writes call, result, event and delivery.
- `drain`: the nodes send a backlog; each leases what no other node has.
- `to_another_node`: a call ends on one node, and another sends its callback. Both are in this process, which adds what one
  takes from the other. Two commits wait for the disk, that of the end and that of the lease, so the same runs on a server
  without fsync: that is the time beyond fsync.

PostgreSQL and the receivers are on the same machine: the sums show what nodes cost each other, not how far they scale.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import asyncpg

from ringback.domain.principal import Principal
from scripts.benchmarks.databases import Databases, StoreKind, databases, databases_without_fsync
from scripts.benchmarks.engine import open_engine
from scripts.benchmarks.latency import PER_SECOND, CallbackSeconds, measure_at_rate
from scripts.benchmarks.measurement import (
    Json,
    Measured,
    fsync_seconds,
    latency_ms,
    machine_facts,
    paired_ratios,
    print_progress,
    summary,
)
from scripts.benchmarks.receivers import Receivers, receivers
from scripts.benchmarks.signed_post import PRINCIPAL

NODES: Final = (1, 2, 4)
CALLS: Final = 4_000
"""Of all nodes together, in each variant and round."""
QUICK_CALLS: Final = 400
POLL_SECONDS: Final = 0.02
_OPEN: Final = "SELECT 1 FROM deliveries WHERE state IN ('pending', 'leased') LIMIT 1"


async def nodes(*, rounds: int, seconds: float, quick: bool) -> Json:
    calls = QUICK_CALLS if quick else CALLS
    results: Json = {"machine": machine_facts(), "rounds": rounds, "calls": calls}
    async with receivers() as found, databases(StoreKind.POSTGRES) as made:
        done = [await _run_round(found, made, number, calls=calls) for number in range(rounds)]
        results["per_second"] = {name: summary([each[name].rate for each in done], 0) for name in done[0]}
        results["cpu_us_of_the_nodes"] = {name: summary([each[name].cpu_us for each in done], 0) for name in done[0]}
        results["ratio_to_one_node"] = {
            name: summary(paired_ratios(done, name, _variant(name.split(" by ")[0], 1)), 2)
            for name in done[0]
            if not name.endswith(" 1")
        }
        results["to_another_node"] = await _to_another_node(found, made, rounds=rounds, seconds=seconds)
    return results


async def _run_round(found: Receivers, made: Databases, number: int, *, calls: int) -> Mapping[str, Measured]:
    done: dict[str, Measured] = {}
    for count in NODES if number % 2 == 0 else NODES[::-1]:
        done[_variant("ends of one principal", count)] = await _end_calls(found, made, [PRINCIPAL] * count, calls=calls)
        owners = [Principal(f"benchmark-{node}") for node in range(count)]
        done[_variant("ends of a principal each", count)] = await _end_calls(found, made, owners, calls=calls)
        done[_variant("drain", count)] = await _drain(found, made, count, calls=calls)
    print_progress("  ".join(f"{name}: {measured.rate:,.0f}/s" for name, measured in sorted(done.items())))
    return done


def _variant(what: str, count: int) -> str:
    return f"{what} by {count}"


async def _end_calls(found: Receivers, made: Databases, owners: Sequence[Principal], *, calls: int) -> Measured:
    urls = found.urls("/fast")
    async with made.empty_database() as url, AsyncExitStack() as stack:
        async with open_engine(url) as engine:
            for owner in set(owners):
                await engine.insert_webhooks(urls, owner)
        running = [
            await stack.enter_async_context(
                _node(database_url=url, ends_calls=True, principal=owner, urls=urls, calls=calls // len(owners))
            )
            for owner in owners
        ]
        began = time.perf_counter()
        for node in running:
            node.send_line()
        cpu_seconds = sum([await node.read_cpu_seconds() for node in running])
        return Measured(count=calls, wall_seconds=time.perf_counter() - began, cpu_seconds=cpu_seconds)


async def _drain(found: Receivers, made: Databases, count: int, *, calls: int) -> Measured:
    urls = found.urls("/fast")
    async with made.empty_database() as url, AsyncExitStack() as stack:
        async with open_engine(url) as engine:
            await engine.insert_webhooks(urls)
            await engine.finish_calls(await engine.running_calls(urls, calls))
        running = [
            await stack.enter_async_context(_node(database_url=url, ends_calls=False, urls=urls)) for _ in range(count)
        ]
        began = time.perf_counter()
        for node in running:
            node.send_line()
        await _wait_until_drained(url)
        wall_seconds = time.perf_counter() - began
        for node in running:
            node.send_line()
        cpu_seconds = sum([await node.read_cpu_seconds() for node in running])
        return Measured(count=calls, wall_seconds=wall_seconds, cpu_seconds=cpu_seconds)


async def _wait_until_drained(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        while await connection.fetchval(_OPEN) is not None:  # noqa: ASYNC110 - rows of another process
            await asyncio.sleep(POLL_SECONDS)
    finally:
        await connection.close()


async def _to_another_node(found: Receivers, made: Databases, *, rounds: int, seconds: float) -> Json:
    fsync: list[Sequence[float]] = []
    async with databases_without_fsync() as unsynced:
        servers = {"with_fsync": made, "beyond_fsync": unsynced}
        taken: dict[str, list[Sequence[CallbackSeconds]]] = {name: [] for name in servers}
        for _ in range(rounds):
            for name, server in servers.items():
                taken[name].append(await _call_back_from_another_node(found, server, seconds=seconds))
            with TemporaryDirectory(prefix="ringback-bench-") as folder:
                fsync.append(fsync_seconds(Path(folder)))
    return {"per_second": PER_SECOND, "fsync": latency_ms(fsync)} | {
        name: {
            "after_completion": latency_ms([[each.after_completion for each in one] for one in of_rounds]),
            "after_commit": latency_ms([[each.after_commit for each in one] for one in of_rounds]),
        }
        for name, of_rounds in taken.items()
    }


async def _call_back_from_another_node(
    found: Receivers, made: Databases, *, seconds: float
) -> Sequence[CallbackSeconds]:
    urls = found.urls("/timed")
    async with (
        made.empty_database() as url,
        open_engine(url) as ending,
        open_engine(url) as sending,
        sending.running_dispatcher(),
    ):
        await ending.insert_webhooks(urls)
        return await measure_at_rate(ending, found, urls, seconds=seconds)


class Node:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._output = process.stdin, process.stdout

    async def wait_until_ready(self) -> None:
        if await self._output.readline() != b"ready\n":
            raise RuntimeError("a node did not start; what it said is on standard error")

    def send_line(self) -> None:
        self._input.write(b"\n")

    async def read_cpu_seconds(self) -> float:
        return json.loads(await self._output.readline())["cpu_seconds"]


@asynccontextmanager
async def _node(**spec: Any) -> AsyncGenerator[Node]:
    command = [sys.executable, "-m", "scripts.benchmarks.node_process", json.dumps(spec)]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        node = Node(process)
        await node.wait_until_ready()
        yield node
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
