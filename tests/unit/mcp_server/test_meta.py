"""The keys of `_meta`: Ringback's own, forwarded ones, and reserved ones."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ringback.mcp_server import meta
from tests.support.examples import CALL

KEYS = st.sampled_from(
    [
        *("progressToken", "progress_token", "ringback/callback", "ringback/correlationId", "ringback/anything"),
        *("io.modelcontextprotocol/clientCapabilities", "io.modelcontextprotocol/logLevel"),
        *("acme/tenant", "traceparent", "openai/session", "ringbackish", "io.modelcontextprotocolish/x"),
    ]
)


@given(st.dictionaries(KEYS, st.text(max_size=5)))
def test_all_meta_except_ringback_and_reserved_keys_goes_upstream(given_meta: dict[str, str]) -> None:
    passed = meta.select_upstream_meta(given_meta)

    ours = {
        key
        for key in given_meta
        if key.startswith(("ringback/", "io.modelcontextprotocol/")) or key in {"progressToken", "progress_token"}
    }
    assert passed == {key: value for key, value in given_meta.items() if key not in ours}


def test_call_meta_contains_the_ids_that_the_call_has() -> None:
    bare = replace(CALL, client_session_id=None, correlation_id=None)

    assert meta.build_call_meta(bare) == {"ringback/callId": CALL.id}
    assert meta.with_call_meta({"content": [], "_meta": {"a": 1}}, bare)["_meta"] == {
        "a": 1,
        "ringback/callId": CALL.id,
    }
