"""A check that a request is refused with a problem document, and that nothing was written."""

from typing import Any

import httpx

from tests.support.service import ServiceUnderTest


async def assert_rejected(
    service: ServiceUnderTest, client: httpx.AsyncClient, method: str, path: str, **sent: Any
) -> dict[str, Any]:
    """The problem document of the response, after a check that no rows were written."""
    before = service.count_rows()
    answer = await client.request(method, path, **sent)
    problem = answer.json()

    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == answer.status_code
    assert problem["title"]
    assert problem["detail"]
    assert service.count_rows() == before
    return problem
