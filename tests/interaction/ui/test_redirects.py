"""Where the dashboard sends a browser, also behind a proxy that serves it below a path."""

from pathlib import Path

from ringback.domain.delivery import DeliveryState
from ringback.domain.principal import DEFAULT_SCOPES, Scope
from tests.support.service import CALL_BODY, CALLBACK_URL, PUBLIC_URL, running_service
from tests.support.viewer_browser import sign_in

TOOL = "/upstreams/git/tools/git_log"


BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def test_a_browser_at_the_root_gets_to_the_dashboard(tmp_path: Path) -> None:
    async with running_service(tmp_path, public_url=f"{PUBLIC_URL}/tools") as service:
        client = await service.create_client("root")
        root, other = [await client.get(f"https://ringback.example{path}", headers=BROWSER) for path in ("/", "/other")]

    assert (root.status_code, root.headers["location"]) == (303, "/tools/ui")
    assert other.status_code == 404


async def test_every_button_leads_to_a_page_below_the_public_path_once(tmp_path: Path) -> None:
    async with running_service(tmp_path, public_url=f"{PUBLIC_URL}/tools") as service:
        client = await service.create_client("root")
        webhook_id = (await client.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]
        call_id, ended_id = [(await client.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"] for _ in range(2)]
        await service.finish_call(ended_id)
        await service.settle_deliveries(await service.read_deliveries("root"), DeliveryState.DEAD)
        (dead,) = await service.read_deliveries("root")
        browser = await sign_in(service, "root", scopes=DEFAULT_SCOPES | {Scope.ADMIN})
        started = {"arguments/repo_path": "/srv", "idempotency_key": "key-1"}

        leads_to = {
            path: (await browser.send(path, on=TOOL, **fields)).headers.get("location", "")
            for path, fields in (
                (f"/calls/{call_id}/cancel", {}),
                (TOOL, started),
                (f"/deliveries/{dead.id}/redeliver", {}),
                ("/deliveries/redeliver", {"state": "dead", "principal": "root"}),
                ("/upstreams/git/pause", {}),
                (f"/webhooks/{webhook_id}/pause", {}),
                (f"/webhooks/{webhook_id}/replay", {"dead": "1"}),
                (f"/webhooks/{webhook_id}/remove", {}),
                ("/sign-out", {}),
            )
        }
        opened = await browser.open("/calls", q=call_id)

    expected = dict.fromkeys(leads_to, "/tools/ui/")
    assert {path: location[: len("/tools/ui/")] for path, location in leads_to.items()} == expected
    assert opened.headers["location"].startswith("/tools/ui/")
