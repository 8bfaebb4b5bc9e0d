"""The clock of all nodes: PostgreSQL's, and how far the nodes are ahead of it.

    PostgreSQL's clock   ──────────╮ set forward an hour      ╭──────────────────────
                                   ╰──────────────────────────╯
    nodes that run       ─────────────────────────────────────────────▶  approach it by 1 s a minute (`domain.clock`)
    a node that starts                       ╰────────────────────────▶  has their time, and not PostgreSQL's

Nodes compare leases by this time. With PostgreSQL's, a node that starts after a step would take over the running calls of all
others, or they those of the new node, and end them as `unknown`. So each node saves how far it is ahead every few seconds.

After a step nodes have to save it again, so a node that starts waits for that as long as another one is connected. If none is,
it continues from the last time, as on SQLite, because due dates and leases in the store refer to it.
"""

from contextlib import suppress
from functools import partial
from typing import Final

import asyncpg

from ringback.domain.clock import CONTINUED_AHEAD_SECONDS_MAX, Clock, SystemClock
from ringback.storage.postgres.driver import Connection
from ringback.storage.postgres.statements import load_sql

FRESH_SECONDS: Final = 15.0
"""Three times the pause between two saves of a node (`notifications.CHECK_SECONDS`)."""
WAIT_SECONDS_MAX: Final = 12.0
"""Longer than a connected node needs to save it again, also one that has to connect first."""
RETRY_SECONDS: Final = 0.5

_SQL: Final = load_sql("session")


async def follow_database_clock(clock: Clock, connection: Connection) -> None:
    """Let the clock follow PostgreSQL's, and save how far it is ahead. A clock of tests only reads it."""

    async def read_wall() -> int:
        (row,) = await connection.fetch(_SQL["clock"].writing)
        return row["nanoseconds"]

    if not isinstance(clock, SystemClock):
        await read_wall()  # shows that the connection works
        return
    if not await clock.follow_wall_clock(read_wall, find_ahead=partial(find_ahead_milliseconds, clock, connection)):
        return  # PostgreSQL's clock may have been set since the last reading that counts
    if (ahead := clock.ahead_milliseconds) is not None:
        with suppress(asyncpg.PostgresError):  # a full disk must not end the notifications
            await connection.fetch(_SQL["save_shared_clock"].writing, ahead)


async def find_ahead_milliseconds(clock: Clock, connection: Connection) -> int:
    """How far the nodes are ahead of PostgreSQL's clock."""
    waits_until = clock.monotonic() + WAIT_SECONDS_MAX
    while True:
        (row,) = await connection.fetch(_SQL["shared_clock"].writing)
        ahead, age = row["ahead"], row["age"]
        if age is None:  # no node has ever saved it
            return 0
        if 0 <= age <= FRESH_SECONDS * 1000:
            return ahead
        if not row["has_nodes"] or clock.monotonic() >= waits_until:
            break
        await clock.sleep(RETRY_SECONDS)
    last_ahead = ahead - age  # of the last time that was saved
    return last_ahead if 0 < last_ahead <= CONTINUED_AHEAD_SECONDS_MAX * 1000 else 0
