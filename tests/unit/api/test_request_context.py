"""Request ids and traces from outside: malformed ones are ignored."""

import pytest
from starlette.datastructures import Headers

from ringback.api.request_context import read_request_id, read_trace_id

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    "text", ["7d3b1e90-5c3a-4b3e-9d0b-2f9d3c1f6a11", "Root=1-67891233-abcdef012345678912345678", "x"]
)
def test_a_request_id_of_a_proxy_is_used(text: str) -> None:
    assert read_request_id(Headers({"X-Request-Id": text})) == text


@pytest.mark.parametrize("text", ["", "a b", "a\tb", "x" * 129, "über", '"quoted"'])
def test_a_request_id_that_does_not_belong_into_a_log_is_ignored(text: str) -> None:
    assert read_request_id(Headers(raw=[(b"x-request-id", text.encode())])) is None


def test_two_request_ids_are_none() -> None:
    assert read_request_id(Headers(raw=[(b"x-request-id", b"one"), (b"x-request-id", b"two")])) is None


@pytest.mark.parametrize("text", [PARENT, f"01-{TRACE}-00f067aa0ba902b7-01-more"])
def test_the_trace_of_a_traceparent_is_used(text: str) -> None:
    assert read_trace_id(Headers({"traceparent": text})) == TRACE


@pytest.mark.parametrize(
    "text",
    [
        "",
        PARENT.upper(),
        f"{PARENT}-more",  # version 00 has four fields
        f"ff-{TRACE}-00f067aa0ba902b7-01",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-00f067aa0ba902b7-01\n",
    ],
)
def test_a_malformed_traceparent_is_ignored(text: str) -> None:
    assert read_trace_id(Headers(raw=[(b"traceparent", text.encode())])) is None
