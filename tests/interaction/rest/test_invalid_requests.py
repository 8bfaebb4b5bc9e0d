"""Invalid requests get a problem document that says what to do, and write nothing."""

from typing import Any

import httpx
import pytest

from ringback.domain.principal import Scope
from ringback.schemas.fields import MEMBERS_MAX
from tests.support.rejections import assert_rejected
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest

pytestmark = pytest.mark.usefixtures("shared_service")

JSON = {"Content-Type": "application/json"}
LONG = "x" * 257


@pytest.mark.parametrize(
    ("method", "path", "body", "place", "meant"),
    [
        ("POST", "/v1/calls", {**CALL_BODY, "argumnts": {}}, "#/argumnts", "arguments"),
        ("POST", "/v1/calls", {**CALL_BODY, "callback": {"ulr": CALLBACK_URL}}, "#/callback/ulr", "url"),
        ("POST", "/v1/calls/batch", {"calls": [{**CALL_BODY, "tol": "a"}]}, "#/calls/0/tol", "tool"),
        ("GET", "/v1/calls?limti=5", None, "limti", "limit"),
        ("POST", "/v1/calls", {**CALL_BODY, "session": "s1"}, "#/session", "client_session_id"),
        ("POST", "/v1/calls/batch", {"calls": [{**CALL_BODY, "key": "k1"}]}, "#/calls/0/key", "idempotency_key"),
        ("POST", "/v1/calls", {**CALL_BODY, "wait": 5}, "#/wait", "wait_seconds"),
        ("POST", "/v1/webhooks", {"callback_url": CALLBACK_URL}, "#/callback_url", "url"),
        ("GET", "/v1/calls?session=s1", None, "session", "client_session_id"),
        ("GET", "/v1/events?correlation=c1", None, "correlation", "correlation_id"),
    ],
)
async def test_an_unknown_member_is_answered_with_the_known_one_that_resembles_it(
    service: ServiceUnderTest, alice: httpx.AsyncClient, method: str, path: str, body: Any, place: str, meant: str
) -> None:
    problem = await assert_rejected(service, alice, method, path, json=body)

    places = {error.get("pointer") or error["parameter"]: error["detail"] for error in problem["errors"]}
    assert places[place] == f"There is no such name. Did you mean '{meant}'?"


@pytest.mark.parametrize(
    ("method", "path", "body", "headers"),
    [
        ("PUT", "/v1/webhooks/by-name/my%20agent", {"url": CALLBACK_URL}, {}),
        ("POST", "/v1/webhooks", {"url": CALLBACK_URL}, {"Idempotency-Key": "tab\tin"}),
        ("POST", "/v1/calls/batch", {"calls": [{**CALL_BODY, "idempotency_key": "caf\xe9"}]}, {}),
        ("POST", "/v1/calls/report", {"key": "caf\xe9", "upstream": "farm", "tool": "build"}, {}),
        ("POST", "/v1/events", {"name": "order.paid", "data": {}, "id": "order 1"}, {}),
        ("POST", "/v1/events", {"name": "Order", "data": {}}, {}),
        ("POST", "/v1/upstreams/git/login", {"scope": "read  write"}, {}),
        ("GET", "/v1/calls?id_prefix=wh_1", None, {}),
        ("GET", "/v1/deliveries?id_prefix=01KAGZ", None, {}),
    ],
)
async def test_a_value_of_the_wrong_form_is_answered_in_words_and_not_with_a_regular_expression(
    service: ServiceUnderTest, method: str, path: str, body: Any, headers: dict[str, str]
) -> None:
    client = await service.create_client("alice", scopes=frozenset(Scope))
    problem = await assert_rejected(service, client, method, path, json=body, headers=headers)

    assert problem["status"] == 422
    assert "pattern" not in problem["detail"]
    assert "^" not in problem["detail"]


async def test_a_member_of_the_body_in_the_query_is_refused_with_its_place(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    problem = await assert_rejected(service, alice, "POST", "/v1/calls?wait_seconds=5", json=CALL_BODY)

    assert problem["detail"] == (
        "wait_seconds: This operation has no query parameters. Members of a request go into its JSON body."
    )


async def test_an_operation_without_a_body_refuses_what_it_would_ignore(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    """Operations on many objects have `dry_run`: ignored on one object, it would be cancelled, or sent again."""
    path = (await alice.post("/v1/calls", json=CALL_BODY)).headers["location"]

    problem = await assert_rejected(service, alice, "POST", f"{path}/cancel", json={"dry_run": True})
    still_open = (await alice.get(path)).json()
    cancelled = await alice.post(f"{path}/cancel", json={})

    assert (problem["status"], problem["detail"]) == (
        422,
        "This operation takes no body. Nothing was done. Leave the body out.",
    )
    assert (still_open["status"], still_open["cancel_requested"]) == ("working", False)
    assert cancelled.json()["status"] == "cancelled"


@pytest.mark.parametrize("body", [b"", b"{ }", b"[]\r\n", b'""', b"null"])
async def test_an_operation_without_a_body_takes_what_libraries_send_for_nothing(
    alice: httpx.AsyncClient, body: bytes
) -> None:
    """PHP encodes an empty array as `[]`, and a template may leave a space between braces."""
    path = (await alice.post("/v1/calls", json=CALL_BODY)).headers["location"]

    cancelled = await alice.post(f"{path}/cancel", content=body, headers=JSON)

    assert cancelled.status_code == 200, cancelled.text


# -- members ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("over", "pointer"),
    [
        ({"upstream": None}, "#/upstream"),
        ({"upstream": ""}, "#/upstream"),
        ({"tool": LONG}, "#/tool"),
        ({"arguments": [1]}, "#/arguments"),
        ({"arguments": "{}"}, "#/arguments"),
        ({"client_session_id": LONG}, "#/client_session_id"),
        ({"client_session_id": "a\nb"}, "#/client_session_id"),
        ({"correlation_id": "a\x00b"}, "#/correlation_id"),
        ({"correlation_id": "a\x7fb"}, "#/correlation_id"),
        ({"correlation_id": "a\u2028b"}, "#/correlation_id"),
        ({"correlation_id": ""}, "#/correlation_id"),
        ({"correlation_id": 7}, "#/correlation_id"),
        ({"wait_seconds": -1}, "#/wait_seconds"),
        ({"wait_seconds": 61}, "#/wait_seconds"),
        ({"wait_seconds": "5"}, "#/wait_seconds"),
        ({"wait_seconds": True}, "#/wait_seconds"),
        ({"timeout_seconds": 0}, "#/timeout_seconds"),
        ({"timeout_seconds": 1e12}, "#/timeout_seconds"),
        ({"rerun_policy": "sometimes"}, "#/rerun_policy"),
        ({"corelation_id": "a"}, "#/corelation_id"),
        ({"callback": {}}, "#/callback/url"),
        ({"callback": {"url": CALLBACK_URL, "tool": "git_log"}}, "#/callback/tool"),
        ({"callback": {"url": CALLBACK_URL, "correlation_id": LONG}}, "#/callback/correlation_id"),
    ],
)
async def test_the_error_for_a_wrong_member_of_a_call_has_its_pointer(
    service: ServiceUnderTest, alice: httpx.AsyncClient, over: dict[str, Any], pointer: str
) -> None:
    problem = await assert_rejected(service, alice, "POST", "/v1/calls", json=CALL_BODY | over)

    assert (problem["status"], problem["type"]) == (422, "/problems/invalid-request")
    assert [error["pointer"] for error in problem["errors"]] == [pointer]
    assert problem["detail"].startswith(pointer)


@pytest.mark.parametrize(
    ("over", "pointer"),
    [
        ({"url": "https://agent.example/" + "x" * 2048}, "#/url"),
        ({"description": "x" * 501}, "#/description"),
        ({"description": "a\x1b[31m"}, "#/description"),
        ({"events": []}, "#/events"),
        ({"events": ["call.finished", "call.begun"]}, "#/events/1"),
        ({"events": "call.finished"}, "#/events"),
        ({"match_correlation": "yes"}, "#/match_correlation"),
        ({"include_result": 1}, "#/include_result"),
        ({"retries": "weeks"}, "#/retries"),
        ({"expires_in_seconds": 0}, "#/expires_in_seconds"),
        ({"expires_in_seconds": 1e300}, "#/expires_in_seconds"),
        ({"cursor": "x" * 769}, "#/cursor"),
        ({"call_id": "x" * 65}, "#/call_id"),
        ({"ordered": "yes"}, "#/ordered"),
        ({"rate_per_second": 0}, "#/rate_per_second"),
        ({"rate_per_second": "fast"}, "#/rate_per_second"),
        ({"rate_per_second": 1e6}, "#/rate_per_second"),
        ({"when": "never"}, "#/when"),
    ],
)
async def test_the_error_for_a_wrong_member_of_a_webhook_has_its_pointer(
    service: ServiceUnderTest, alice: httpx.AsyncClient, over: dict[str, Any], pointer: str
) -> None:
    problem = await assert_rejected(service, alice, "POST", "/v1/webhooks", json={"url": CALLBACK_URL} | over)

    assert (problem["status"], problem["type"]) == (422, "/problems/invalid-request")
    assert [error["pointer"] for error in problem["errors"]] == [pointer]


@pytest.mark.parametrize(
    "secret", ["hunter2", "whsec_hunter2", "whsec_" + "hunter2" * 100, {"is": "hunter2"}, ["hunter2"], ""]
)
async def test_a_wrong_secret_is_not_repeated(
    service: ServiceUnderTest, alice: httpx.AsyncClient, secret: object
) -> None:
    for method, path, body, pointer in [
        ("POST", "/v1/webhooks", {"url": CALLBACK_URL, "secret": secret}, "#/secret"),
        ("PUT", "/v1/webhooks/by-name/agent", {"url": CALLBACK_URL, "secret": secret}, "#/secret"),
        ("POST", "/v1/calls", CALL_BODY | {"callback": {"url": CALLBACK_URL, "secret": secret}}, "#/callback/secret"),
    ]:
        problem = await assert_rejected(service, alice, method, path, json=body)

        assert problem["status"] == 422
        assert problem["detail"].startswith(f"{pointer}: ")
        assert [error["pointer"] for error in problem["errors"]] == [pointer]
        assert "hunter2" not in str(problem)
        assert "item" not in problem["detail"], "a secret has characters"


async def test_the_number_of_reported_validation_errors_is_bounded(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    body = {f"{'unknown' * 60}{number}": number for number in range(MEMBERS_MAX)}
    problem = await assert_rejected(service, alice, "POST", "/v1/webhooks", json=body)

    assert len(problem["errors"]) == 20
    assert len(str(problem)) < 10_000


@pytest.mark.parametrize("key", ["", "x" * 257, "tab\tin", "caf\xe9"])
async def test_an_idempotency_key_is_short_printable_ascii(
    service: ServiceUnderTest, alice: httpx.AsyncClient, key: str
) -> None:
    header = {"Idempotency-Key": key.encode("latin-1")}
    problem = await assert_rejected(service, alice, "POST", "/v1/calls", json=CALL_BODY, headers=header)

    assert problem["errors"][0]["parameter"] == "Idempotency-Key"


# -- what has to exist -----------------------------------------------------------------------------------------------------


async def test_an_unknown_upstream_is_answered_with_a_likely_one(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    problem = await assert_rejected(service, alice, "POST", "/v1/calls", json=CALL_BODY | {"upstream": "gti"})

    assert (problem["status"], problem["type"]) == (422, "/problems/unknown-upstream")
    assert "Did you mean 'git'?" in problem["detail"]
    assert "GET /v1/upstreams" in problem["detail"]


async def test_an_unknown_tool_is_answered_with_a_likely_one(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    problem = await assert_rejected(service, alice, "POST", "/v1/calls", json=CALL_BODY | {"tool": "git_lgo"})

    assert (problem["status"], problem["type"], problem["tool"]) == (422, "/problems/unknown-tool", "git_lgo")
    assert "Did you mean 'git_log'?" in problem["detail"]
    assert "GET /v1/upstreams/git/tools" in problem["detail"]


@pytest.mark.parametrize(
    ("arguments", "pointer"),
    [
        ({}, "#/arguments"),
        ({"repo_path": 7}, "#/arguments/repo_path"),
        ({"repo_path": "/srv/repo", "max_count": "ten"}, "#/arguments/max_count"),
    ],
)
async def test_arguments_are_judged_against_the_tools_schema(
    service: ServiceUnderTest, alice: httpx.AsyncClient, arguments: dict[str, Any], pointer: str
) -> None:
    body = CALL_BODY | {"arguments": arguments, "callback": {"url": CALLBACK_URL}}
    problem = await assert_rejected(service, alice, "POST", "/v1/calls", json=body)

    assert (problem["status"], problem["type"]) == (422, "/problems/invalid-arguments")
    assert [error["pointer"] for error in problem["errors"]] == [pointer]


@pytest.mark.parametrize(
    "url",
    [
        "agent.example",
        "http://agent.example/",
        "ftp://agent.example/",
        "https://user:hunter2@agent.example/",
        "https://agent.example/#here",
        "https://agent example/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://169.254.169.254/latest/meta-data",
        "https://2130706433/",
        "https://inside.example/",
        "javascript:alert(1)",
    ],
)
async def test_a_url_that_may_not_be_called_back_is_refused_everywhere(
    service: ServiceUnderTest, alice: httpx.AsyncClient, url: str
) -> None:
    for path, body in [("/v1/webhooks", {"url": url}), ("/v1/calls", CALL_BODY | {"callback": {"url": url}})]:
        problem = await assert_rejected(service, alice, "POST", path, json=body)

        assert (problem["status"], problem["type"]) == (422, "/problems/invalid-callback-url")
        assert "hunter2" not in str(problem)


# -- paths -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/call", "/v1/calls/", "/v2/calls", "/v1/calls/a/b/c", "//v1/calls"])
async def test_an_unknown_path_is_a_problem_too(service: ServiceUnderTest, alice: httpx.AsyncClient, path: str) -> None:
    problem = await assert_rejected(service, alice, "GET", f"https://ringback.example{path}")

    assert (problem["status"], problem["type"]) == (404, "/problems/unknown-path")
    assert all(known in problem["detail"] for known in ("/ui", "/openapi.json", "/llms.txt"))


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/webhooks", "GET, POST"),
        ("DELETE", "/v1/calls", "GET, POST"),
        ("PUT", "/v1/webhooks/wh_1", "GET, PATCH, DELETE"),
        ("GET", "/v1/resume", "POST"),
        ("GET", "/v1/calls/call_1/cancel", "POST"),
        ("POST", "/healthz", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_answered_with_the_right_ones(
    service: ServiceUnderTest, alice: httpx.AsyncClient, method: str, path: str, allowed: str
) -> None:
    answer = await alice.request(method, path)

    assert (answer.status_code, answer.json()["type"]) == (405, "/problems/method-not-allowed")
    assert answer.headers["allow"] == allowed
    assert allowed in answer.json()["detail"]
