"""Checks of Host and Origin, and responses to unexpected errors."""

import logging
from pathlib import Path

import httpx
import pytest
from starlette.types import Message

from ringback.domain.principal import Scope
from ringback.mcp_server.http_options import OPTION_HEADERS
from tests.support.service import PUBLIC_URL, ServiceUnderTest, running_service

PAGE = "https://console.example"


async def status(service: ServiceUnderTest, *, host: str, server: str = PUBLIC_URL) -> int:
    client = await service.create_anonymous_client(base_url=server)
    return (await client.get("/llms.txt", headers={"Host": host})).status_code


@pytest.mark.parametrize("host", ["ringback.example", "ringback.example:8443", "RINGBACK.example", "other.example"])
async def test_the_public_and_the_allowed_hosts_are_answered(tmp_path: Path, host: str) -> None:
    async with running_service(tmp_path, allowed_hosts=["other.example"]) as service:
        assert await status(service, host=host) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "ringback.example.evil.example", "", "ringback.example@evil.example", "a b", "127.0.0.1"]
)
async def test_other_hosts_are_refused(service: ServiceUnderTest, host: str) -> None:
    client = await service.create_anonymous_client()

    answer = await client.get("/v1/calls", headers={"Host": host})

    assert (answer.status_code, answer.json()["type"]) == (421, "/problems/foreign-host")
    assert "RINGBACK_ALLOWED_HOSTS" in answer.json()["detail"]


@pytest.mark.parametrize("host", ["localhost:8090", "127.0.0.1:8090", "[::1]:8090", "127.0.0.2"])
async def test_on_loopback_every_name_of_loopback_is_answered_and_a_rebound_one_is_not(
    service: ServiceUnderTest, host: str
) -> None:
    assert await status(service, host=host, server="http://127.0.0.1:8090") == 200
    assert await status(service, host="evil.example", server="http://127.0.0.1:8090") == 421


async def test_a_monitor_reads_the_metrics_of_a_node_at_its_own_address_and_nothing_else(
    service: ServiceUnderTest,
) -> None:
    key = await service.create_api_key("monitor", scopes=frozenset({Scope.METRICS, Scope.READ}))
    headers = {"Authorization": f"Bearer {key}", "Host": "ringback-1:8090"}
    node = await service.create_anonymous_client(base_url="http://10.1.2.3:8090", headers=headers)
    local = await service.create_anonymous_client(base_url="http://127.0.0.1:8090", headers=headers)

    assert (await node.get("/metrics")).status_code == 200
    assert (await node.get("/metrics", headers={"Authorization": ""})).status_code == 401
    assert (await node.get("/v1/calls")).status_code == 421
    assert (await local.get("/metrics")).status_code == 421


async def test_a_sidecar_on_loopback_may_ask_for_the_metrics_of_the_address_of_its_node(
    service: ServiceUnderTest,
) -> None:
    key = await service.create_api_key("monitor", scopes=frozenset({Scope.METRICS, Scope.READ}))
    sidecar = await service.create_anonymous_client(
        base_url="http://127.0.0.1:8090", headers={"Authorization": f"Bearer {key}"}
    )

    for host in ("10.1.2.3:8090", "[fd00::5]:8090"):
        assert (await sidecar.get("/metrics", headers={"Host": host})).status_code == 200
        assert (await sidecar.get("/v1/calls", headers={"Host": host})).status_code == 421


async def test_without_allowed_origins_no_page_may_call(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    for origin in (PAGE, "null", PUBLIC_URL.replace("https", "http")):
        answer = await alice.get("/v1/calls", headers={"Origin": origin})

        assert (answer.status_code, answer.json()["type"]) == (403, "/problems/foreign-origin")
        assert "access-control-allow-origin" not in answer.headers


async def test_on_loopback_the_same_address_may_be_the_origin_and_no_other(service: ServiceUnderTest) -> None:
    local = await service.create_anonymous_client(base_url="http://127.0.0.1:8090")

    for origin, code in (
        ("http://127.0.0.1:8090", 200),
        ("http://127.0.0.1:8091", 403),
        ("http://localhost:8090", 403),
        ("https://127.0.0.1:8090", 403),
    ):
        answer = await local.get("/llms.txt", headers={"Origin": origin})

        assert answer.status_code == code


async def test_a_page_of_an_allowed_origin_may_call_and_read(tmp_path: Path) -> None:
    async with running_service(tmp_path, allowed_origins=[PAGE]) as service:
        alice = await service.create_client("alice")
        preflight = {
            "Origin": PAGE,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization, idempotency-key",
        }

        preflighted = await alice.options("/v1/calls", headers=preflight)
        called = await alice.get("/v1/calls", headers={"Origin": PAGE})
        failed = await alice.get("/v1/calls/none", headers={"Origin": PAGE})
        other = await alice.options("/v1/calls", headers=preflight | {"Origin": "https://evil.example"})

        assert preflighted.status_code == 200
        assert "POST" in preflighted.headers["access-control-allow-methods"]
        for answer in (preflighted, called, failed):
            assert answer.headers["access-control-allow-origin"] == PAGE
            assert "access-control-allow-credentials" not in answer.headers
        assert other.status_code == 403


async def test_a_page_of_an_allowed_origin_may_send_every_option_header_of_an_mcp_client(tmp_path: Path) -> None:
    async with running_service(tmp_path, allowed_origins=[PAGE]) as service:
        alice = await service.create_client("alice")
        names = [name.decode() for name in OPTION_HEADERS]
        preflight = {
            "Origin": PAGE,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": ", ".join([*names, "traceparent", "tracestate"]),
        }

        preflighted = await alice.options("/mcp", headers=preflight)

        assert preflighted.status_code == 200, preflighted.text


@pytest.mark.parametrize(
    ("names", "expected_status"),
    [
        ("Mcp-Param-Region", 200),
        ("authorization, mcp-param-region,mcp-param-TenantId", 200),
        ("mcp-param-region, x-other", 400),
        ("mcp-param-", 400),
        ("x-mcp-param-region", 400),
    ],
)
async def test_a_page_of_an_allowed_origin_may_repeat_arguments_in_headers(
    tmp_path: Path, names: str, expected_status: int
) -> None:
    """The tools choose the names (`x-mcp-header`), and a client of 2026-07-28 must send them."""
    async with running_service(tmp_path, allowed_origins=[PAGE]) as service:
        alice = await service.create_client("alice")
        preflight = {
            "Origin": PAGE,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": names,
        }

        preflighted = await alice.options("/mcp", headers=preflight)

        allowed = {name.strip() for name in preflighted.headers["access-control-allow-headers"].split(",")}
        assert preflighted.status_code == expected_status, preflighted.text
        assert expected_status != 200 or {name.strip() for name in names.split(",")} <= allowed


async def test_a_client_that_hangs_up_within_its_body_is_no_failure(
    service: ServiceUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    key = await service.create_api_key("alice")
    headers = {"host": "ringback.example", "authorization": f"Bearer {key}", "content-type": "application/json"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/calls",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    pieces = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])
    sent: list[Message] = []

    async def receive() -> Message:
        return next(pieces)

    async def send(message: Message) -> None:
        sent.append(message)

    await service.app(scope, receive, send)

    assert sent == []
    assert service.count_rows()["calls"] == 0
    assert [record.levelname for record in caplog.records if record.levelno > logging.INFO] == []


async def test_an_internal_error_is_logged_and_reveals_nothing(
    service: ServiceUnderTest, alice: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    service.app.state.services = "no services at all"
    with caplog.at_level(logging.ERROR, logger="ringback"):
        answer = await alice.get("/v1/calls")

    assert (answer.status_code, answer.json()["type"]) == (500, "/problems/internal-error")
    assert "attribute" not in answer.text
    (record,) = caplog.records
    assert record.getMessage() == "request.failed"
    assert record.exc_info is not None
