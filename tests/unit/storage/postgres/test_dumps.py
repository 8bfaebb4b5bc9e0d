"""A dump has one installation, also of a database with several."""

import asyncio
import os
from pathlib import Path

import asyncpg
import pytest

from ringback.storage.postgres.store import PostgresStore
from ringback.storage.postgres_programs import dump_database, restore_database
from ringback.storage.schema import find_other_installations
from tests.support.builders import make_call
from tests.support.clock import FakeClock
from tests.support.postgres_databases import empty_database
from tests.support.postgres_instance import find_programs
from tests.support.stores import make_sealer


def in_schema(url: str, name: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{name}"


def make_store(url: str) -> PostgresStore:
    return PostgresStore(url, clock=FakeClock(), sealer=make_sealer())


async def test_the_dump_of_an_installation_has_no_other_one_of_its_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(find_programs(tmp_path) / "bin"), prepend=os.pathsep)
    call, foreign = make_call(), make_call()
    async with empty_database() as shared, empty_database() as empty:
        admin = await asyncpg.connect(shared)
        await admin.execute('CREATE SCHEMA "other"')
        await admin.close()
        for url, kept in ((shared, call), (in_schema(shared, "other"), foreign)):
            store = make_store(url)
            await store.open()
            await store.write(lambda tx, kept=kept: tx.calls.insert(kept))
            await store.close()

        others = await find_other_installations(shared)
        await asyncio.to_thread(dump_database, shared, tmp_path / "dump", without_schemas=others)
        await asyncio.to_thread(restore_database, empty, tmp_path / "dump")

        restored = make_store(empty)
        await restored.open()
        assert await restored.read(lambda tx: tx.calls.get(call.id)) == call
        await restored.close()
        assert await find_other_installations(empty) == []


async def test_the_schema_of_an_installation_may_be_named_with_a_space_as_psql_accepts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(find_programs(tmp_path) / "bin"), prepend=os.pathsep)
    async with empty_database() as database:
        url = in_schema(database, "public").replace("=-c", "=-c%20")
        store = make_store(url)
        await store.open()
        await store.close()

        await asyncio.to_thread(dump_database, url, tmp_path / "dump")

    assert (tmp_path / "dump").stat().st_size > 0
