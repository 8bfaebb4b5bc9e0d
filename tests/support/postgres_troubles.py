"""What befalls the database of nodes on bad days.

async with full_disk(url) as trouble, trouble.lasting(): ...     nodes use `trouble.url`
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

import asyncpg

from tests.support.limits import WAIT_SECONDS
from tests.support.tcp_proxy import running_tcp_proxy

REFUSE_ROW: Final = """
CREATE FUNCTION refuse_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'could not extend file "base/5/16384": No space left on device' USING ERRCODE = 'disk_full';
END $$;
"""
"""Reads and deletions work, as on a full disk, but no table gets a row or another version of one."""
IN_STATEMENTS: Final = (
    "CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON {} FOR EACH ROW EXECUTE FUNCTION refuse_row()"
)
AT_COMMITS: Final = """
CREATE CONSTRAINT TRIGGER full_disk AFTER INSERT OR UPDATE ON {} DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION refuse_row()
"""
TABLES: Final = """
SELECT quote_ident(relname) FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
"""
END_SESSIONS: Final = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1"


@dataclass(frozen=True, slots=True)
class Trouble:
    url: str
    """The database for the nodes that get the trouble."""
    lasting: Callable[[], AbstractAsyncContextManager[None]]
    """It begins and ends with this context."""


@asynccontextmanager
async def lost_network(url: str) -> AsyncGenerator[Trouble]:
    """All connections are cut, and new ones refused."""
    parts = urlsplit(url)
    assert parts.port is not None
    async with running_tcp_proxy(parts.port) as proxy:

        @asynccontextmanager
        async def lasting() -> AsyncGenerator[None]:
            proxy.refuse()
            proxy.cut()
            yield
            proxy.refuse(refusing=False)

        yield Trouble(_replace_server(parts, parts.username, parts.password, proxy.port), lasting)


@asynccontextmanager
async def full_disk(url: str, *, refusals: str = IN_STATEMENTS) -> AsyncGenerator[Trouble]:
    """Statements that write fail."""
    connection = await asyncpg.connect(url)

    @asynccontextmanager
    async def lasting() -> AsyncGenerator[None]:
        await connection.execute(REFUSE_ROW)
        for (table,) in await connection.fetch(TABLES):
            await connection.execute(refusals.format(table))
        try:
            yield
        finally:  # later tests use the database
            async with asyncio.timeout(WAIT_SECONDS):
                await _stop_refusing(connection)

    yield Trouble(url, lasting)
    await connection.close()


async def _stop_refusing(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """The statement locks all tables, one after the other, while units of the nodes lock them in their own order."""
    while True:
        try:
            await connection.execute("DROP FUNCTION refuse_row CASCADE")
        except asyncpg.DeadlockDetectedError:
            continue
        return


full_disk_at_commits = partial(full_disk, refusals=AT_COMMITS)


@asynccontextmanager
async def no_connections(url: str) -> AsyncGenerator[Trouble]:
    """All connections end, and the server has none left for the nodes' user, which has the rights of the server's own."""
    parts = urlsplit(url)
    user = f"limited_{parts.path.removeprefix('/')}"
    admin = await asyncpg.connect(url)
    own = await admin.fetchval("SELECT quote_ident(current_user)")
    await admin.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'limited' IN ROLE {own}")
    await admin.execute(f"ALTER ROLE {user} SET role = {own}")

    @asynccontextmanager
    async def lasting() -> AsyncGenerator[None]:
        await admin.execute(f"ALTER ROLE {user} CONNECTION LIMIT 0")
        await admin.fetch(END_SESSIONS, user)
        yield
        await admin.execute(f"ALTER ROLE {user} CONNECTION LIMIT -1")

    try:
        yield Trouble(_replace_server(parts, user, "limited", parts.port), lasting)
    finally:
        await admin.execute(f"DROP ROLE {user}")
        await admin.close()


def _replace_server(parts: SplitResult, user: str | None, password: str | None, port: int | None) -> str:
    login = "" if user is None else f"{user}@" if password is None else f"{user}:{password}@"
    return urlunsplit(parts._replace(netloc=f"{login}127.0.0.1:{port}"))
