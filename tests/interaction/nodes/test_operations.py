"""The operator's commands and settings on PostgreSQL."""

import asyncio
import dataclasses
import json
from base64 import b64encode
from dataclasses import replace
from datetime import timedelta

import pytest
from typer.testing import CliRunner

from ringback.cli.app import app
from ringback.cli.installation_checks.database import NODE_CONNECTIONS_MAX, describe_server
from ringback.domain.errors import StoreUnavailable
from ringback.signing.sealing import KEY_BYTES
from ringback.storage.open import inspect_server
from ringback.storage.postgres.store import LIMITS
from tests.interaction.nodes.conftest import Site
from tests.support.nodes import SECRET_KEYS
from tests.support.postgres_databases import empty_database

pytestmark = pytest.mark.requirement("R34")


async def run_command(
    site: Site, monkeypatch: pytest.MonkeyPatch, *arguments: str, secret_keys: str = SECRET_KEYS
) -> str:
    return await run_command_on(site.cluster.database_url, monkeypatch, *arguments, secret_keys=secret_keys)


async def run_command_on(
    database_url: str, monkeypatch: pytest.MonkeyPatch, *arguments: str, secret_keys: str = SECRET_KEYS
) -> str:
    """The output of a command with the service's settings, in a thread, because it runs an event loop of its own."""
    monkeypatch.setenv("RINGBACK_DATABASE_URL", database_url)
    monkeypatch.setenv("RINGBACK_SECRET_KEYS", secret_keys)
    result = await asyncio.to_thread(CliRunner().invoke, app, arguments)
    return result.output


async def test_keys_are_created_listed_and_revoked_in_the_shared_database(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await site.cluster.start_node()
    created = json.loads(await run_command(site, monkeypatch, "keys", "create", "alice", "--json"))
    assert (await node.get("/v1/calls", key=created["key"])).status_code == 200

    listed = json.loads(await run_command(site, monkeypatch, "keys", "list", "--json"))
    await run_command(site, monkeypatch, "keys", "revoke", created["id"])

    assert created["id"] in {key["id"] for key in listed}
    assert (await node.get("/v1/calls", key=created["key"])).status_code == 401


async def test_the_doctor_describes_the_server_and_shows_no_password(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.cluster.start_node()

    output = await run_command(site, monkeypatch, "doctor", "--json")

    findings = {finding["about"]: finding for finding in json.loads(output)}
    assert findings["database"]["ok"]
    assert findings["database connections"]["ok"]
    assert findings["database clock"]["ok"]
    assert findings["database schema"]["ok"]
    assert findings["sealed data"]["ok"]


async def test_the_doctor_leaves_an_empty_database_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """It made the tables, and `ringback restore` refuses a database that has some."""
    async with empty_database() as url:
        output = await run_command_on(url, monkeypatch, "doctor", "--json")
        applied = (await inspect_server(url)).schema_applied

    findings = {finding["about"]: finding for finding in json.loads(output)}
    assert findings["database"]["ok"]
    assert findings["database schema"]["detail"].startswith("version 0 of ")
    assert applied == 0


async def test_a_node_with_another_key_of_the_same_id_does_not_start_and_the_doctor_says_so(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.cluster.start_node()
    other = f"test:{b64encode(b'o' * KEY_BYTES).decode()}"

    with pytest.raises(StoreUnavailable, match=r"another key with the id 'test'"):
        await site.cluster.start_node(secret_keys=other)

    output = await run_command(site, monkeypatch, "doctor", "--json", secret_keys=other)
    findings = {finding["about"]: finding for finding in json.loads(output)}
    assert not findings["sealed data"]["ok"]
    assert "'test'" in findings["sealed data"]["detail"]


async def test_the_doctor_reports_a_server_that_nodes_cannot_use(site: Site) -> None:
    await site.cluster.start_node()
    good = replace(await inspect_server(site.cluster.database_url), is_durable=True)
    bad = {
        "database server": [replace(good, is_standby=True), replace(good, is_durable=False)],
        "database connections": [replace(good, connections=good.connections_max - 3)],
        "database clock": [replace(good, now=good.now + timedelta(hours=1))],
    }

    assert all(finding.ok for finding in describe_server(good, now=good.now))
    for about, servers in bad.items():
        for server in servers:
            assert [each.about for each in describe_server(server, now=good.now) if not each.ok] == [about]


def test_the_doctor_knows_how_many_connections_a_node_needs() -> None:
    assert sum(dataclasses.astuple(LIMITS)) + 1 == NODE_CONNECTIONS_MAX
