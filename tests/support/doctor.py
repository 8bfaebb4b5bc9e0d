"""What `ringback doctor --json` reports, and a mocked service for it."""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Final

import httpx
import respx
from typer.testing import Result

from ringback import __version__

Run = Callable[..., Result]
Found = dict[str, tuple[bool, str]]

SERVICE_URL: Final = "http://127.0.0.1:8090"


def findings(ran: Result) -> Found:
    return {found["about"]: (found["ok"], found["detail"]) for found in json.loads(ran.stdout)}


def list_failed_checks(ran: Result) -> Found:
    assert ran.exit_code == 1
    return {about: (ok, detail) for about, (ok, detail) in findings(ran).items() if not ok}


def list_checks(run: Run, *more: str) -> Result:
    return run("doctor", "--json", *more)


@contextmanager
def mocked_service() -> Generator[respx.MockRouter]:
    """A mocked process that works on every route."""
    with respx.mock(assert_all_called=False) as router:
        router.get(f"{SERVICE_URL}/readyz").mock(side_effect=respond_ready)
        router.get(f"{SERVICE_URL}/healthz").respond(404)
        router.get(f"{SERVICE_URL}/openapi.json").respond(json={"servers": [{"url": SERVICE_URL}]})
        router.get(f"{SERVICE_URL}/v1/status").mock(side_effect=respond_status)
        router.get(f"{SERVICE_URL}/v1/webhooks").respond(200, json={"webhooks": [], "next_cursor": None})
        router.get(f"{SERVICE_URL}/v1/upstreams/git/tools").respond(503)
        yield router


def respond_ready(_: httpx.Request) -> httpx.Response:
    date = format_datetime(_now(), usegmt=True)
    return httpx.Response(200, json={"status": "ready", "degraded": []}, headers={"date": date})


def respond_status(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json=make_status())


def make_status(**changed: Any) -> dict[str, Any]:
    healthy: dict[str, Any] = {
        "version": __version__,
        "time": _now().isoformat(),
        "public_url": SERVICE_URL,
        "problem": None,
        "roles": {"api": True},
        "failing_workers": [],
        "failing_endpoints": [],
        "lacks_keys": False,
        "failing_webhooks": 0,
        "oldest_due_delivery_age_seconds": 0.0,
        "upstreams": [],
    }
    return healthy | changed


def refuse_status(service: respx.MockRouter, status: int, detail: str) -> None:
    problem = {"content-type": "application/problem+json"}
    service.get(f"{SERVICE_URL}/v1/status").respond(status, json={"detail": detail}, headers=problem)


def find(run: Run, *arguments: str) -> Found:
    return findings(list_checks(run, *arguments))


def find_in_service(run: Run, service: respx.MockRouter, **changed: Any) -> Found:
    service.get(f"{SERVICE_URL}/v1/status").mock(side_effect=[httpx.Response(200, json=make_status(**changed))])
    return find(run, "--url", SERVICE_URL, "--api-key", "rbk_admin")


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the doctor compares with the machine's clock
