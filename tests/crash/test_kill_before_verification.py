"""`kill -9` of the service after it has stored a webhook, before the challenge is sent to its URL."""

from pathlib import Path

import httpx
import pytest

from tests.support.application import SECRET, serving_callbacks
from tests.support.engine import wait_until
from tests.support.limits import WAIT_SECONDS
from tests.support.processes import post_unless_killed, running_process


@pytest.mark.requirement("R26")
@pytest.mark.requirement("R35")
async def test_a_webhook_that_waits_for_its_proof_is_proven_by_the_next_process(tmp_path: Path) -> None:
    async with serving_callbacks() as phone:
        spec = {"folder": str(tmp_path), "upstream": "http://127.0.0.1:9/mcp", "verify": "always"}
        async with running_process(**spec, unit="WebhookRegistrations.register_webhook.<locals>", after=True) as doomed:
            assert await post_unless_killed(doomed.url, "/v1/webhooks", {"url": phone.url, "secret": SECRET}) is None
            assert await doomed.wait_until_dead() == -9

        async with (
            running_process(**spec) as revived,
            httpx.AsyncClient(base_url=revived.url, timeout=WAIT_SECONDS) as http,
        ):

            async def active() -> bool:
                (webhook,) = (await http.get("/v1/webhooks")).json()["webhooks"]
                return webhook["state"] == "active"

            await wait_until(active)
