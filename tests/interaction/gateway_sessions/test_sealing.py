"""What a session agreed on is sealed at rest, and follows a rotation of the keys."""

import pytest

from ringback.domain.encryption import SealedColumn
from ringback.keyring import rotate_key_file
from ringback.settings import Settings
from tests.interaction.gateway_sessions.conftest import RestartableRingback, open_session, send
from tests.interaction.gateway_sessions.lost_streams import LONG_WAIT, lose_stream
from tests.support.databases import query_rows
from tests.support.engine import wait_until
from tests.support.event_reader import resume_stream

pytestmark = pytest.mark.requirement("R25")


def random_key(size: int) -> bytes:
    return bytes(range(size))


@pytest.mark.sqlite_only("reads SQLite's files")
async def test_the_files_do_not_say_what_a_client_declared(files: RestartableRingback) -> None:
    async with files.running() as running:
        await open_session(running, capabilities={"experimental": {"canary-in-capabilities": {}}})
        stored = b"".join(file.read_bytes() for file in files.folder.iterdir() if file.is_file())
    assert b"mcp_sessions" in stored
    assert b"canary-in-capabilities" not in stored


@pytest.mark.sqlite_only("the key file is beside SQLite's file")
async def test_a_session_and_its_streams_survive_a_rotation_of_the_keys(files: RestartableRingback) -> None:
    async with files.running(**LONG_WAIT) as first:
        session = await open_session(first)
        event_id = await lose_stream(first, session)
        files.stage.release.set()
        await first.wait_until_ended()
    rotate_key_file(Settings(database_url=f"sqlite:///{files.folder / 'ringback.db'}"), random_bytes=random_key)
    async with files.running() as second:
        async with resume_stream(second.find_session(session), event_id) as stream:
            assert "kept" in (await stream.read_response()).data["result"]["content"][0]["text"]
        store = second.application.app.store

        async def is_resealed() -> bool:
            counts = await store.read(
                lambda tx: tx.sealed_values.count_by_key(SealedColumn.SESSIONS, after="", limit=10)
            )
            current = (files.folder / "ringback.db.key").read_text().partition(":")[0]
            return set(counts.counts_by_key) == {current}

        await wait_until(is_resealed)


async def test_a_session_sealed_with_a_lost_key_is_unknown(files: RestartableRingback) -> None:
    async with files.running() as first:
        session = await open_session(first)
        ((state,),) = query_rows(files.folder, "SELECT state FROM mcp_sessions")
        query_rows(files.folder, "UPDATE mcp_sessions SET state = ?", b"\x01\x04lost" + state[10:])
    async with files.running() as second:
        assert (await send(second.find_session(session))).status_code == 404
        again = await open_session(second)
        assert (await again.request("tools/list", {}))["tools"]
