"""`ringback listen --port` and the webhook that it registers for its time."""

import os
import signal
from collections.abc import Callable

import httpx
import pytest
import respx
from typer.testing import Result

from ringback.cli import callback_receiver
from ringback.cli.output import print_message
from ringback.schemas import examples

Run = Callable[..., Result]
URL = "http://127.0.0.1:8090"


@pytest.fixture
def is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, once the receiver listens."""

    def interrupt(message: str) -> None:
        print_message(message)
        if message.startswith("Listening on"):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(callback_receiver, "print_message", interrupt)


@pytest.mark.usefixtures("is_interrupted")
def test_a_key_that_may_not_list_webhooks_receives_callbacks_and_leaves_no_webhook(run: Run) -> None:
    forbidden = httpx.Response(
        403,
        json={"type": "about:blank", "title": "Forbidden", "status": 403, "detail": "The key lacks the scope read."},
        headers={"content-type": "application/problem+json"},
    )
    with respx.mock(base_url=URL, assert_all_called=True) as service:
        service.put(url__regex=r"/v1/webhooks/by-name/listen-.*").respond(json=examples.REGISTERED_WEBHOOK)
        service.get("/v1/webhooks").mock(return_value=forbidden)
        service.delete(f"/v1/webhooks/{examples.WEBHOOK_ID}").respond(204)

        ended = run("listen", "--port", "0", "--url", URL)

    assert ended.exit_code == 0
    assert f"Registered the webhook {examples.WEBHOOK_ID}" in ended.stderr
