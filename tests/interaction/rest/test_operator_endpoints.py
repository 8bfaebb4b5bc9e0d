"""Health, readiness and problem types."""

import asyncio

import httpx
import pytest

from ringback import __version__
from ringback.api.problems import iterate_error_types
from ringback.domain.principal import Scope
from ringback.storage.rows.sealing_keys import SqlSealingKeys
from tests.support.service import ServiceUnderTest
from tests.support.stores import FOREVER


@pytest.fixture
async def probe(service: ServiceUnderTest) -> httpx.AsyncClient:
    """A client without a key, and with another host name than the public one."""
    return await service.create_anonymous_client(base_url="http://10.1.2.3:8090")


@pytest.fixture
async def root(service: ServiceUnderTest) -> httpx.AsyncClient:
    return await service.create_client("operator", scopes=frozenset({Scope.ADMIN}))


async def test_a_living_process_is_healthy_even_when_it_takes_no_work(
    service: ServiceUnderTest, probe: httpx.AsyncClient
) -> None:
    service.store.refusals = FOREVER
    service.services.lifecycle.begin_shutdown()

    answer = await probe.get("/healthz")

    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize(("path", "status"), [("/healthz", 200), ("/readyz", 503)])
async def test_a_probe_may_ask_for_the_head_alone(
    service: ServiceUnderTest, probe: httpx.AsyncClient, path: str, status: int
) -> None:
    """Common monitors and `wget --spider` do."""
    service.services.lifecycle.begin_shutdown()

    head = await probe.head(path)
    other = await probe.post(path)

    assert head.status_code == (await probe.get(path)).status_code == status
    assert (other.status_code, other.headers["allow"]) == (405, "GET, HEAD")


async def test_a_service_that_takes_work_is_ready(probe: httpx.AsyncClient) -> None:
    answer = await probe.get("/readyz")

    roles = {"api": True, "runner": True, "dispatcher": True, "janitor": True}
    assert (answer.status_code, answer.json()) == (200, {"status": "ready", "degraded": [], "roles": roles})


async def test_many_probes_without_a_key_read_the_store_once_a_second(
    probe: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacks_any, reads = SqlSealingKeys.lacks_any, list[object]()

    async def count_and_read(self: SqlSealingKeys) -> bool:
        reads.append(self)
        return await lacks_any(self)

    monkeypatch.setattr(SqlSealingKeys, "lacks_any", count_and_read)

    responses = await asyncio.gather(*(probe.get("/readyz") for _ in range(20)))

    assert {response.status_code for response in responses} == {200}
    assert len(reads) == 1


async def test_a_service_that_stops_is_not_ready(service: ServiceUnderTest, probe: httpx.AsyncClient) -> None:
    service.services.lifecycle.begin_shutdown()

    assert (await probe.get("/readyz")).status_code == 503


async def test_a_service_that_cannot_write_is_not_ready(service: ServiceUnderTest, probe: httpx.AsyncClient) -> None:
    service.store.refusals = FOREVER

    answer = (await probe.get("/readyz")).json()
    assert answer["type"] == "/problems/store-unavailable"
    assert not any(answer["roles"].values())


async def test_a_service_whose_workers_fail_is_not_ready_and_names_them(
    service: ServiceUnderTest, probe: httpx.AsyncClient
) -> None:
    service.failing_workers |= {"runner", "dispatcher"}

    answer = await probe.get("/readyz")

    assert (answer.status_code, answer.json()["failing"]) == (503, ["dispatcher", "runner"])
    service.failing_workers.clear()
    assert (await probe.get("/readyz")).status_code == 200


async def test_a_service_with_a_failed_mcp_endpoint_is_ready_and_names_it(
    service: ServiceUnderTest, probe: httpx.AsyncClient
) -> None:
    service.failing_endpoints |= {"/mcp/paint", "/mcp"}

    answer = await probe.get("/readyz")

    assert (answer.status_code, answer.json()["degraded"]) == (200, ["/mcp", "/mcp/paint"])


async def test_a_failed_worker_counts_more_than_a_failed_endpoint(
    service: ServiceUnderTest, probe: httpx.AsyncClient
) -> None:
    service.failing_endpoints.add("/mcp/paint")
    service.failing_workers.add("runner")

    answer = await probe.get("/readyz")

    assert (answer.status_code, answer.json()["failing"]) == (503, ["runner"])


@pytest.mark.usefixtures("shared_service")
async def test_every_problem_type_has_a_page(service: ServiceUnderTest) -> None:
    anonymous = await service.create_anonymous_client()
    for kind in iterate_error_types():
        described = (await anonymous.get(f"/problems/{kind.slug}")).json()
        assert (described["type"], described["title"]) == (f"/problems/{kind.slug}", kind.title())

    assert (await anonymous.get("/problems/none-of-ours")).status_code == 404


@pytest.mark.usefixtures("shared_service")
async def test_no_page_that_loads_foreign_scripts_is_served(service: ServiceUnderTest) -> None:
    anonymous = await service.create_anonymous_client()

    assert [(await anonymous.get(path)).status_code for path in ("/docs", "/redoc")] == [404, 404]


async def test_the_status_shows_an_operator_what_this_node_does(
    service: ServiceUnderTest, root: httpx.AsyncClient
) -> None:
    answer = await root.get("/v1/status")

    status = answer.json()
    assert answer.status_code == 200, answer.text
    assert (status["version"], status["problem"], status["lacks_keys"]) == (__version__, None, False)
    assert status["oldest_due_delivery_age_seconds"] == 0.0
    service.failing_workers |= {"dispatcher"}
    assert (await root.get("/v1/status")).json()["failing_workers"] == ["dispatcher"]


async def test_the_status_says_why_a_node_stores_no_work(service: ServiceUnderTest, root: httpx.AsyncClient) -> None:
    service.services.lifecycle.begin_shutdown()

    answer = await root.get("/v1/status")

    assert answer.status_code == 200
    assert answer.json()["problem"]


async def test_only_an_operator_reads_the_status(alice: httpx.AsyncClient) -> None:
    assert (await alice.get("/v1/status")).status_code == 403
