"""The usual alternative: a task queue on PostgreSQL (procrastinate) whose task signs and sends.

It does less than the engine: no event log, encryption, attempt log or fairness. A job's end is its only record.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from procrastinate import App, PsycopgConnector

from ringback.domain.clock import SystemClock
from ringback.domain.ids import IdGenerator
from scripts.benchmarks.databases import Databases
from scripts.benchmarks.measurement import Measured, measuring
from scripts.benchmarks.signed_post import IN_FLIGHT, bare_session, post_signed

POOL_CONNECTIONS: Final = 16
"""With the default of 4, a worker of 64 waits for connections."""
DEFERRED_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class TaskQueue:
    app: App
    callback: Any
    """The task; procrastinate's own type for it is generic over the signature of a local function."""

    async def drain(self, urls: Sequence[str], body: bytes, deliveries: int) -> Measured:
        """Run a stored backlog of jobs; measured until the worker has run them all."""
        await self.app.connector.execute_query_async("TRUNCATE procrastinate_jobs CASCADE")
        ids = IdGenerator(SystemClock())
        jobs = [
            {"url": urls[number % len(urls)], "message_id": ids.new_event_id(), "body": body.decode()}
            for number in range(deliveries)
        ]
        for start in range(0, deliveries, DEFERRED_AT_ONCE):
            await self.callback.batch_defer_async(*jobs[start : start + DEFERRED_AT_ONCE])
        with measuring(deliveries) as measured:
            await self.app.run_worker_async(concurrency=IN_FLIGHT, wait=False, install_signal_handlers=False)
        await self._check(deliveries)
        return measured

    async def _check(self, deliveries: int) -> None:
        """Check the jobs' success: a queue whose jobs fail would look fast."""
        row = await self.app.connector.execute_query_one_async(
            "SELECT count(*) AS done FROM procrastinate_jobs WHERE status = 'succeeded'"
        )
        if row["done"] != deliveries:
            raise RuntimeError(f"procrastinate ran {row['done']} of {deliveries} jobs")


@asynccontextmanager
async def task_queue(postgres: Databases) -> AsyncGenerator[TaskQueue]:
    """Procrastinate with its schema in an empty database."""
    async with postgres.empty_database() as url:
        app = App(connector=PsycopgConnector(conninfo=url, max_size=POOL_CONNECTIONS))
        async with app.open_async(), bare_session() as session:
            await app.schema_manager.apply_schema_async()
            yield TaskQueue(app, _register(app, session))


def _register(app: App, session: aiohttp.ClientSession) -> Any:
    clock = SystemClock()

    @app.task(name="callback")
    async def callback(url: str, message_id: str, body: str) -> None:
        await post_signed(session, clock, url, message_id, body.encode())

    return callback
