"""A page that refuses a request for now says in its header when the request can be sent again, as the REST API does."""

from pathlib import Path

import httpx
import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.services.limits.quotas import Quotas
from tests.support.service import CALLBACK_URL, ServiceUnderTest, running_service
from tests.support.viewer_browser import FORM_HEADERS, sign_in

TOOL = "/upstreams/git/tools/git_log"


async def test_a_page_that_the_store_cannot_fill_now_has_the_time_of_the_next_try(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = await sign_in(service, "alice")

    async def fail(*_: object, **__: object) -> None:
        raise StoreUnavailable("The store is away.")

    monkeypatch.setattr(service.services.calls, "list_calls", fail)
    page = await browser.open("/calls")

    assert (page.status_code, page.headers["retry-after"]) == (503, "5")


async def test_a_form_above_a_quota_has_the_time_of_the_next_try(tmp_path: Path) -> None:
    webhook = {"url": CALLBACK_URL, "events": "call.finished"}
    async with running_service(tmp_path, quotas=Quotas(open_calls=0, webhooks=0, starts_per_minute=0)) as service:
        browser = await sign_in(service, "alice")
        forms = [
            await browser.send(TOOL, on=TOOL, **{"arguments/repo_path": "/srv"}),
            await browser.send("/webhooks/new", on="/webhooks/new", **webhook),
        ]

    assert [form.status_code for form in forms] == [429, 429]
    assert all(int(form.headers["retry-after"]) > 0 for form in forms)


@pytest.mark.parametrize("path", ["/ui/sign-in", "/login/git"])
async def test_a_sign_in_after_too_many_wrong_keys_has_the_time_of_the_next_try(
    service: ServiceUnderTest, path: str
) -> None:
    browser: httpx.AsyncClient = await service.create_anonymous_client()

    answers = [await browser.post(path, data={"key": f"rbk_{number}"}, headers=FORM_HEADERS) for number in range(11)]

    assert [answer.status_code for answer in answers] == [401] * 10 + [429]
    assert int(answers[-1].headers["retry-after"]) > 0
    assert "retry-after" not in answers[0].headers
