"""Backups made while the service works, and restored by the operator's page after it went on without them."""

import json
import sqlite3
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from ringback.bootstrap import Environment
from ringback.client import Call, RingbackClient
from ringback.client.problems import Problem
from ringback.domain.errors import StoreUnavailable
from ringback.domain.principal import DEFAULT_SCOPES
from ringback.signing.sealing import KEY_BYTES
from ringback.upstreams.config import UpstreamConfig
from tests.support.application import (
    CallbackReceiver,
    RunningApplication,
    running_application,
    serving_callbacks,
    start_upstream_call,
    wait_until_ended,
)
from tests.support.clock import OffsetClock
from tests.support.engine import wait_until
from tests.support.limits import WAIT_SECONDS
from tests.support.operations_page import run_snippet
from tests.support.postgres_databases import empty_database
from tests.support.postgres_instance import find_programs
from tests.support.receivers import NO_CONTENT, Receiver, respond_with, serving_receiver
from tests.support.upstreams import ControlledUpstream, make_http_config, serving

pytestmark = pytest.mark.requirement("R20")

KEY_RING: Final = f"test:{b64encode(bytes(KEY_BYTES)).decode()}"
"""The same for the node that was backed up and the node that is restored: it is not in the database."""
LEASES_END_SECONDS: Final = 120.0
"""A restore takes longer than a lease, which other nodes respect until it ends. Receivers accept clocks five minutes apart."""


@dataclass(slots=True)
class LostTime:
    """What clients remember from before the restore."""

    api_key: str
    ended: Call
    """It ended before the backup."""
    held: Call
    """It was running at the backup."""
    lost: Call
    """It was made after the backup."""
    cursor: str
    """Behind the end of `lost`."""


async def work_and_back_up(
    ringback: RunningApplication, stage: ControlledUpstream, phone: CallbackReceiver, **snippet: Any
) -> LostTime:
    """Run the page's snippet while a call is running, and work on after it."""
    api_key, agent = await create_agent(ringback)
    ended = await start_upstream_call(agent, "echo", phone, correlation_id="before")
    await phone.wait_for_callback("before")
    held = await start_upstream_call(agent, "hold", phone)
    await stage.wait_until_held(1)

    await run_snippet(**snippet)

    lost = await start_upstream_call(agent, "echo", phone, correlation_id="after")
    await phone.wait_for_callback("after")
    cursor = (await agent.poll_events()).cursor
    return LostTime(api_key, ended, held, lost, cursor)


async def create_agent(ringback: RunningApplication) -> tuple[str, RingbackClient]:
    """An API key, and a client that uses it."""
    keys = ringback.app.services.api_keys
    _, key = await keys.create_key("alice", name="test", scopes=DEFAULT_SCOPES, upstreams=None)
    return key, await ringback.client(api_key=key)


async def check_what_the_backup_has(ringback: RunningApplication, phone: CallbackReceiver, past: LostTime) -> None:
    """What was acknowledged before the backup is there, and what was running ends truthfully."""
    agent = await ringback.client(api_key=past.api_key)
    assert (await agent.call(past.ended.id)).outcome == "result"
    assert (
        await wait_until_ended(agent, past.held)
    ).outcome == "unknown"  # it was dispatched, and how it ended is unknown

    async def has_called_back() -> bool:
        return any(callback.data["call_id"] == past.held.id for callback in phone.callbacks)

    await wait_until(has_called_back)


async def check_what_clients_learn_of_the_loss(
    ringback: RunningApplication, receiver: Receiver, past: LostTime
) -> None:
    """A client that has missed events gets `truncated` or a gap."""
    agent = await ringback.client(api_key=past.api_key)
    with pytest.raises(Problem) as unknown:
        await agent.call(past.lost.id)
    assert unknown.value.status == 404

    page = await agent.poll_events(cursor=past.cursor)
    assert page.truncated
    assert past.ended.id in [event.data["call_id"] for event in page.events]

    await agent.register_webhook(receiver.url(), cursor=past.cursor)
    (gap, *_) = await receiver.wait_for_requests(1, within_seconds=WAIT_SECONDS)
    assert json.loads(gap.body)["type"] == "gap"


@asynccontextmanager
async def upstream_and_receivers() -> AsyncGenerator[
    tuple[ControlledUpstream, UpstreamConfig, CallbackReceiver, Receiver]
]:
    stage = ControlledUpstream()
    async with (
        serving(stage.app()) as server,
        serving_callbacks() as phone,
        serving_receiver(respond_with(NO_CONTENT)) as receiver,
    ):
        yield stage, make_http_config(server.url), phone, receiver


@pytest.mark.sqlite_only
async def test_a_backup_of_a_working_sqlite_service_restores_calls_keys_and_secrets(tmp_path: Path) -> None:
    places: dict[str, Any] = {
        "RINGBACK_DATABASE_URL": f"sqlite:///{tmp_path / 'ringback.db'}",
        "BACKUP": str(tmp_path / "backup"),
        "REHEARSAL": str(tmp_path / "rehearsal"),
    }
    async with upstream_and_receivers() as (stage, upstream, phone, receiver):
        async with running_application(tmp_path, upstream) as ringback:
            past = await work_and_back_up(ringback, stage, phone, name="backup", **places)

        (tmp_path / "rehearsal").mkdir()
        assert "alice" in await run_snippet("rehearse", **places)
        await run_snippet("restore-sqlite", **places)
        phone.callbacks.clear()

        async with running_application(tmp_path, upstream) as ringback:
            await check_what_the_backup_has(ringback, phone, past)
            await check_what_clients_learn_of_the_loss(ringback, receiver, past)


@pytest.mark.sqlite_only  # it names its databases itself
async def test_a_backup_of_a_working_postgres_node_restores_calls_and_secrets_into_an_empty_database(
    tmp_path: Path,
) -> None:
    programs = find_programs(tmp_path) / "bin"
    async with (
        upstream_and_receivers() as (stage, upstream, phone, receiver),
        empty_database() as lost,
        empty_database() as restored,
    ):
        async with running_application(tmp_path, upstream, database_url=lost, secret_keys=KEY_RING) as ringback:
            past = await work_and_back_up(
                ringback,
                stage,
                phone,
                name="backup",
                programs=programs,
                RINGBACK_DATABASE_URL=lost,
                BACKUP=str(tmp_path / "backup"),
            )

        environment = {"RINGBACK_DATABASE_URL": restored, "BACKUP": str(tmp_path / "backup")}
        await run_snippet("restore-postgres", programs=programs, **environment)
        phone.callbacks.clear()

        clock = OffsetClock()
        clock.advance(LEASES_END_SECONDS)
        async with running_application(
            tmp_path,
            upstream,
            environment=Environment(clock=clock),
            database_url=restored,
            secret_keys=KEY_RING,
        ) as ringback:
            await check_what_clients_learn_of_the_loss(ringback, receiver, past)
            await check_what_the_backup_has(ringback, phone, past)


@pytest.mark.sqlite_only
async def test_an_older_state_of_the_disk_is_not_served_before_the_operator_accepts_the_loss(tmp_path: Path) -> None:
    database, snapshot = tmp_path / "ringback.db", tmp_path / "snapshot.db"
    async with running_application(tmp_path) as ringback:
        await create_agent(ringback)
        with closing(sqlite3.connect(database)) as served, closing(sqlite3.connect(snapshot)) as copy:
            served.backup(copy)
        await create_agent(ringback)
    database.write_bytes(snapshot.read_bytes())

    with pytest.raises(StoreUnavailable, match="--accept-restore"):
        async with running_application(tmp_path):
            raise NotImplementedError


@pytest.mark.sqlite_only
async def test_the_upgrade_check_says_that_a_served_database_has_every_migration(tmp_path: Path) -> None:
    async with running_application(tmp_path):
        printed = await run_snippet("check-schema", RINGBACK_DATABASE_URL=f"sqlite:///{tmp_path / 'ringback.db'}")

    assert "the last of this version" in printed


@pytest.mark.sqlite_only
async def test_a_database_file_copied_beside_its_key_from_a_running_service_is_refused_with_words(
    tmp_path: Path,
) -> None:
    """Why the page says `ringback backup`: a young service's commits are all in the write-ahead log."""
    (tmp_path / "copied").mkdir()
    async with running_application(tmp_path) as ringback:
        await create_agent(ringback)
        for name in ("ringback.db", "ringback.db.key"):
            (tmp_path / "copied" / name).write_bytes((tmp_path / name).read_bytes())

    with pytest.raises(StoreUnavailable, match="copied while a service used it"):
        async with running_application(tmp_path / "copied"):
            raise NotImplementedError
