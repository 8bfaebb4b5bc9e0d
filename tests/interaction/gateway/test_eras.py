"""Features of one era between an upstream and a client of different eras."""

from pathlib import Path
from typing import Any, Final

import httpx

from tests.support.application import running_application
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, ModernClient, legacy_session
from tests.support.upstreams import (
    ControlledUpstream,
    OverriddenResponses,
    make_http_config,
    respond_with_result,
    serving,
)

CALL: Final[Json] = {"name": "spoiled", "arguments": {}}
LISTED: Final[dict[str, Any]] = {
    "resultType": "complete",
    "content": [{"type": "text", "text": "[1, 2]"}],
    "structuredContent": [1, 2],
}


async def test_only_modern_clients_get_structured_content_that_is_no_object(tmp_path: Path) -> None:
    """In legacy versions structured content is always an object, and clients refuse anything else."""
    app = OverriddenResponses(ControlledUpstream().app(), {"tool:spoiled": respond_with_result(LISTED)})
    async with (
        serving(app) as server,
        running_application(tmp_path, make_http_config(server.url), auth="off") as ringback,
        serving(ringback.app.api) as near,
        httpx.AsyncClient(timeout=WAIT_SECONDS) as http,
    ):
        today = await ModernClient(http, f"{near.url}/stage").request("tools/call", CALL, declare={})
        async with legacy_session(http, f"{near.url}/stage") as session:
            before = await session.request("tools/call", CALL)

    assert today["structuredContent"] == [1, 2]
    assert "structuredContent" not in before
    assert before["content"] == LISTED["content"]
