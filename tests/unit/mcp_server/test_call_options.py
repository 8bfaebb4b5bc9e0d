"""Which requests have an option of Ringback: their clients know that a call outlives its request."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringback.mcp_server.call_options import mentions_ringback
from ringback.mcp_server.request_context import RequestContext


def make_context(
    meta: dict[str, Any] | None = None, headers: list[tuple[bytes, bytes]] | None = None, query: bytes = b""
) -> RequestContext:
    return cast("RequestContext", SimpleNamespace(meta=meta or {}, http_headers=headers or [], query_string=query))


@pytest.mark.parametrize(
    "context",
    [
        make_context(meta={"ringback/correlationId": "c"}),
        make_context(headers=[(b"accept", b"*/*"), (b"ringback-correlation-id", b"c")]),
        make_context(query=b"wait=20&webhook=wh_1"),
        make_context(query=b"client_session_id="),
    ],
)
def test_an_option_anywhere_mentions_ringback(context: RequestContext) -> None:
    assert mentions_ringback(context)


@pytest.mark.parametrize(
    "context",
    [
        make_context(),
        make_context(meta={"client_session_id": "s", "traceparent": "00"}),
        make_context(headers=[(b"traceparent", b"00"), (b"mcp-session-id", b"s")]),
        make_context(query=b"wait=20&api_key=x&webhooks=1"),
    ],
)
def test_words_of_others_do_not_mention_ringback(context: RequestContext) -> None:
    assert not mentions_ringback(context)
