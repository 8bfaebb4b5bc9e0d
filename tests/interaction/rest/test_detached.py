"""`when` over REST: registered, shown, changed, and described in `hears`."""

import httpx
import pytest

WEBHOOK = {"url": "https://agent.example/callback"}


@pytest.mark.requirement("R22")
async def test_the_default_delivery_condition_is_always_and_can_be_changed(
    alice: httpx.AsyncClient,
) -> None:
    plain = (await alice.post("/v1/webhooks", json=WEBHOOK)).json()
    detached = (await alice.post("/v1/webhooks", json=WEBHOOK | {"when": "detached"})).json()
    path = f"/v1/webhooks/{detached['id']}"

    assert (plain["when"], detached["when"]) == ("always", "detached")
    assert "not for a call whose end its client received" in detached["hears"]
    assert (await alice.patch(path, json={"description": "mine"})).json()["when"] == "detached"
    assert (await alice.patch(path, json={"when": "always"})).json()["when"] == "always"
    assert (await alice.get(path)).json()["when"] == "always"
