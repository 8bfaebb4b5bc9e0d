"""Bodies that cannot be read get a problem document that says what to do, and write nothing."""

from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest

from ringback.domain import json_size
from ringback.services.limits.body_admission import LARGE_BYTES
from tests.support.rejections import assert_rejected
from tests.support.service import ServiceUnderTest

JSON = {"Content-Type": "application/json"}
MEBIBYTE = b"x" * 1024 * 1024
LONG = "x" * 257
MANY_NAMES = [f"x-{each}" for each in range(1_000)]
LONE_SURROGATE = '{"url": "https://agent.example/\\ud800"}'
DEEPLY_NESTED = '{"upstream": "git", "tool": "git_log", "arguments": {"a": ' + "[" * 300 + "]" * 300 + "}}"


class ChunkedUpload:
    """A body in chunks that counts the chunks that were read."""

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces
        self.chunks_read = 0

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        for _ in range(self.pieces):
            self.chunks_read += 1
            yield MEBIBYTE


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize("path", ["/v1/calls", "/v1/webhooks", "/v1/resume"])
@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b"", (1, 1)),
        (b"{", (1, 2)),
        (b'{\n  "url": https://agent.example\n}', (2, 10)),
        (b'{"url": NaN}', (1, 9)),
        (b'{"url": 1e999}', (1, 9)),
        (b"{} {}", (1, 4)),
        (b"\xff\xfe", (1, 1)),
        (b"\xef\xbb\xbf{}", (1, 1)),
        (LONE_SURROGATE.encode(), None),
        (b"[" * 5000 + b"]" * 5000, None),
    ],
)
async def test_malformed_json_is_answered_with_the_place(
    service: ServiceUnderTest, alice: httpx.AsyncClient, path: str, text: bytes, place: tuple[int, int] | None
) -> None:
    problem = await assert_rejected(service, alice, "POST", path, content=text, headers=JSON)

    assert (problem["status"], problem["type"]) == (400, "/problems/malformed-json")
    assert isinstance(problem["position"], int)
    if place is not None:
        assert (problem["line"], problem["column"]) == place


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b'{"a": 1e400}', "a number beyond the range of doubles, at line 1, column 7"),
        (b'{"a":\n -%b}' % (b"9" * 5000), "a number beyond the range of doubles, at line 2, column 2"),
        (rb'{"a": "\ud800"}', "an unpaired surrogate, at line 1, column 8"),
        (rb'{"a": "\udc00"}', "an unpaired surrogate, at line 1, column 8"),
        (b"[" * 5000 + b"]" * 5000, "too many levels"),
    ],
)
async def test_json_with_a_value_that_cannot_be_kept_is_not_called_something_else(
    service: ServiceUnderTest, alice: httpx.AsyncClient, text: bytes, named: str
) -> None:
    problem = await assert_rejected(service, alice, "POST", "/v1/calls", content=text, headers=JSON)

    assert problem["status"] == 400
    assert problem["detail"].startswith(f"The body has {named}")
    assert "not JSON" not in problem["detail"] + problem["title"]


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/v1/webhooks", '{"url": "https://agent.example/", "headers": {"x-key": "1", "x-tenant": "2", "x-key": "3"}}'),
        ("/v1/calls", '{"upstream": "git", "tool": "git_log", "arguments": {"a": [{"x-key": 1, "x-key": 1}]}}'),
        ("/v1/resume", '{"x-key": "1", "resume_token": "2", "x-key": "1"}'),
    ],
)
async def test_an_object_with_two_members_of_one_name_is_refused(
    service: ServiceUnderTest, alice: httpx.AsyncClient, path: str, text: str
) -> None:
    problem = await assert_rejected(service, alice, "POST", path, content=text, headers=JSON)

    assert (problem["status"], problem["type"]) == (422, "/problems/invalid-request")
    assert "two members named 'x-key'" in problem["detail"]


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        (
            "/v1/webhooks",
            {"url": "https://agent.example/", "events": [f"No{each}" for each in range(1_000)]},
            "#/events",
        ),
        ("/v1/webhooks", {"url": "https://agent.example/", "outcomes": ["no"] * 1_000}, "#/outcomes"),
        ("/v1/webhooks", {"url": "https://agent.example/", "headers": dict.fromkeys(MANY_NAMES, 1)}, "#/headers"),
        ("/v1/webhooks", dict.fromkeys(MANY_NAMES, 1), "#"),
        ("/v1/calls", {"callback": dict.fromkeys(MANY_NAMES, 1)}, "#/callback"),
        (f"/v1/calls/call_{'0' * 26}/input", {"responses": dict.fromkeys(MANY_NAMES, 1)}, "#/responses"),
        ("/v1/keys", {"principal": "alice", "scopes": MANY_NAMES}, "#/scopes"),
        ("/v1/keys", {"principal": "alice", "upstreams": ["\n"] * 1_000}, "#/upstreams"),
    ],
)
async def test_a_thousand_wrong_members_are_one_error(
    service: ServiceUnderTest, alice: httpx.AsyncClient, path: str, body: dict[str, Any], pointer: str
) -> None:
    problem = await assert_rejected(service, alice, "POST", path, json=body)

    assert problem["status"] == 422
    assert len(problem["errors"]) <= 3  # two names are missing in the call
    (error,) = [each for each in problem["errors"] if each["pointer"] == pointer]
    assert error["detail"].startswith("It has more than ")


@pytest.mark.usefixtures("shared_service")
async def test_a_misspelled_name_is_named_before_the_one_that_is_therefore_missing(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    problem = await assert_rejected(service, alice, "POST", "/v1/resume", json={"token": "abc"})

    assert problem["detail"].startswith("#/token: There is no such name. Did you mean 'resume_token'?")


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(("path", "member"), [("/v1/calls/batch", "calls"), ("/v1/events/batch", "events")])
async def test_the_errors_of_a_batch_are_those_of_its_first_wrong_member(
    service: ServiceUnderTest, alice: httpx.AsyncClient, path: str, member: str
) -> None:
    """Each of a hundred members may have hundreds of errors, which took seconds to describe together."""
    problem = await assert_rejected(
        service, alice, "POST", path, json={member: [dict.fromkeys(MANY_NAMES[:60], 1)] * 100}
    )

    assert {error["pointer"].split("/")[2] for error in problem["errors"]} == {"0"}
    assert "(62 errors in total" in problem["detail"]


async def test_a_body_with_too_many_values_is_refused_with_what_to_do(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_size, "VALUES_MAX", LARGE_BYTES // 2)
    text = '{"upstream": "git", "tool": "git_log", "arguments": {"a": [' + "1," * (LARGE_BYTES // 2) + "1]}}"
    problem = await assert_rejected(service, alice, "POST", "/v1/calls", content=text, headers=JSON)

    assert (problem["status"], problem["values_max"]) == (422, LARGE_BYTES // 2)
    assert "Send large data as one text" in problem["detail"]


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
    ],
)
async def test_a_body_that_is_not_declared_as_json_is_answered_with_what_to_send(
    service: ServiceUnderTest, alice: httpx.AsyncClient, content_type: str | None
) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    problem = await assert_rejected(service, alice, "POST", "/v1/calls", content=b"{}", headers=headers)

    assert (problem["status"], problem["type"]) == (415, "/problems/unsupported-media-type")
    assert "Content-Type: application/json" in problem["detail"]


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON"])
async def test_json_may_be_declared_in_any_spelling(alice: httpx.AsyncClient, content_type: str) -> None:
    answer = await alice.post(
        "/v1/webhooks", content=b'{"url":"https://agent.example/"}', headers={"Content-Type": content_type}
    )
    assert answer.status_code == 201


@pytest.mark.usefixtures("shared_service")
async def test_a_compressed_body_is_answered_with_the_name_of_its_encoding(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    headers = JSON | {"Content-Encoding": "br"}
    problem = await assert_rejected(service, alice, "POST", "/v1/calls", content=b"{}", headers=headers)

    assert (problem["status"], problem["type"]) == (415, "/problems/unsupported-content-encoding")
    assert "'br'" in problem["detail"]


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize("name", ["Idempotency-Key", "Authorization"])
async def test_a_header_that_is_sent_twice_is_answered_with_its_name(
    service: ServiceUnderTest, alice: httpx.AsyncClient, name: str
) -> None:
    headers = [*JSON.items(), (name, "one"), (name, "two")]
    problem = await assert_rejected(service, alice, "POST", "/v1/calls", content=b"{}", headers=headers)

    assert (problem["status"], problem["type"]) == (400, "/problems/malformed-request")
    assert f"The header {name} is sent more than once" in problem["detail"]


@pytest.mark.usefixtures("shared_service")
async def test_ten_mebibytes_without_a_declared_length_are_stopped_at_the_limit(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    upload = ChunkedUpload(pieces=10)
    problem = await assert_rejected(service, alice, "POST", "/v1/calls", content=upload, headers=JSON)

    assert (problem["status"], problem["type"]) == (413, "/problems/content-too-large")
    assert upload.chunks_read == 1


@pytest.mark.usefixtures("shared_service")
async def test_a_body_with_a_declared_length_of_ten_mebibytes_is_not_read(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    upload = ChunkedUpload(pieces=10)
    headers = JSON | {"Content-Length": str(10 * len(MEBIBYTE))}
    problem = await assert_rejected(service, alice, "POST", "/v1/calls", content=upload, headers=headers)

    assert problem["status"] == 413
    assert upload.chunks_read == 0


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize("text", [b"[]", b'"text"', b"1", b"null", b"true"])
async def test_a_body_that_is_no_object_is_refused(
    service: ServiceUnderTest, alice: httpx.AsyncClient, text: bytes
) -> None:
    problem = await assert_rejected(service, alice, "POST", "/v1/webhooks", content=text, headers=JSON)

    assert (problem["status"], problem["type"]) == (422, "/problems/invalid-request")


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    "text", [DEEPLY_NESTED, '{"upstream": "git", "tool": "git_log", "arguments": {"n": 1%s}}' % ("0" * 300)]
)
async def test_json_that_could_not_be_written_again_is_refused(
    service: ServiceUnderTest, alice: httpx.AsyncClient, text: str
) -> None:
    problem = await assert_rejected(service, alice, "POST", "/v1/calls", content=text.encode(), headers=JSON)

    assert (problem["status"], problem["type"]) == (422, "/problems/invalid-request")
