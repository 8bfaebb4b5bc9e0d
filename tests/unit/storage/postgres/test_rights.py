"""A role that may use all tables and no sequence can store no call, and the check of readiness says so."""

from collections.abc import AsyncGenerator
from urllib.parse import urlsplit

import asyncpg
import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.storage.postgres.store import PostgresStore
from tests.support.clock import FakeClock
from tests.support.databases import database_pool
from tests.support.stores import make_sealer


@pytest.fixture
async def url() -> AsyncGenerator[str]:
    """A database with empty tables, through TCP, because a role of the test has a password."""
    pool = database_pool()
    name = pool.take()
    yield pool.address.tcp_url(name)
    pool.give_back(name)


@pytest.fixture
async def role(url: str, admin: "asyncpg.Connection[asyncpg.Record]") -> AsyncGenerator[str]:
    """A role with all rights on tables and no other."""
    role = f"tables_only_{urlsplit(url).path.removeprefix('/')}"
    await admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'limited'")
    await admin.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
    yield role
    await admin.execute(f"DROP OWNED BY {role}")
    await admin.execute(f"DROP ROLE {role}")


@pytest.fixture
async def limited(url: str, role: str) -> AsyncGenerator[PostgresStore]:
    parts = urlsplit(url)
    limited_url = parts._replace(netloc=f"{role}:limited@{parts.netloc.rpartition('@')[2]}").geturl()
    store = PostgresStore(limited_url, clock=FakeClock(), sealer=make_sealer())
    await store.open()
    yield store
    await store.close()


async def test_a_node_whose_role_may_use_no_sequence_is_not_ready(
    limited: PostgresStore, role: str, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    with pytest.raises(StoreUnavailable, match="permission denied for sequence turn_tickets") as refused:
        await limited.write(lambda tx: tx.write_probe.write_probe_row())
    assert refused.value.needs_operator

    await admin.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}")
    await limited.write(lambda tx: tx.write_probe.write_probe_row())
