"""Requests that are generated from the OpenAPI document get no 5xx and no response that violates the document.

Schemathesis generates the requests, half of them valid, and checks the responses.
"""

# schemathesis' generics are only half typed.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.api_server import serving_api
from tests.support.service import ServiceUnderTest

DOCUMENT: Final = json.loads((Path(__file__).parents[3] / "openapi" / "ringback.json").read_text(encoding="utf-8"))
CASES: Final = 100
CASES_DEEP: Final = 20_000
EXCLUDED_OPERATIONS: Final = frozenset({"/v1/events/stream", "/readyz"})
"""The stream never ends, and readiness is 503 without workers. Both have their own tests."""
CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


async def test_generated_requests_get_documented_responses(service: ServiceUnderTest, *, deep: bool) -> None:
    alice = await service.create_client("alice")
    cases = CASES_DEEP if deep else CASES
    async with serving_api(service.app) as url:
        request_count = await asyncio.to_thread(request_all_operations, url, alice.headers["authorization"], cases)

    assert request_count >= cases * 0.9  # an operation without parameters has one request only


def request_all_operations(url: str, authorization: str, cases: int) -> int:
    """The number of responses."""
    operations = _operations()
    each = -(-cases // len(operations))
    with requests.Session() as session:
        session.headers["authorization"] = authorization
        return sum(request_operation(operation, session, url, examples=each) for operation in operations)


def _operations() -> Sequence[Any]:
    found = schemathesis.openapi.from_dict(DOCUMENT).get_all_operations()
    operations = [each.ok() for each in found if isinstance(each, Ok)]
    return [operation for operation in operations if operation.path not in EXCLUDED_OPERATIONS]


def request_operation(operation: Any, session: requests.Session, url: str, *, examples: int) -> int:
    count = 0

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    @given(case=operation.as_strategy())
    def is_answered_as_documented(case: Case[Any]) -> None:
        nonlocal count
        without_waiting(case)
        case.call_and_validate(base_url=url, session=session, checks=CHECKS)
        count += 1

    is_answered_as_documented()
    return count


def without_waiting(case: Case[Any]) -> None:
    """Shorten long polls, which may last a minute."""
    for part in (case.query, case.body):
        if isinstance(part, dict):
            cast("dict[str, Any]", part).pop("wait_seconds", None)
