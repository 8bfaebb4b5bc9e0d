"""Call options in headers and in the query: read, refused with words, and never shown."""

from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.errors import InvalidRequest
from ringback.mcp_server.http_options import (
    QUERY_PARAMETERS_MAX,
    HttpOptions,
    has_http_options,
    read_http_options,
    read_traceparent,
)

HEADERS = {
    "client_session_id": b"ringback-client-session-id",
    "correlation_id": b"ringback-correlation-id",
    "idempotency_key": b"ringback-idempotency-key",
    "callback_url": b"ringback-callback-url",
    "callback_secret": b"ringback-callback-secret",
}
PARAMETERS = ("client_session_id", "correlation_id", "callback_url", "webhook")
URL = "https://agent.example/callback?a=1&b=ü"


def test_every_header_sets_its_option() -> None:
    headers = [(name, option.encode()) for option, name in HEADERS.items()]

    assert read_http_options(headers, b"") == HttpOptions(**{option: option for option in HEADERS})


def test_every_parameter_sets_its_option() -> None:
    query = urlencode({"client_session_id": "s 1", "correlation_id": "ä", "callback_url": URL, "webhook": "wh_1"})

    options = read_http_options([], query.encode())

    assert options == HttpOptions(client_session_id="s 1", correlation_id="ä", callback_url=URL, webhook="wh_1")


def test_a_header_precedes_the_parameter_and_neither_hides_other_options() -> None:
    options = read_http_options(
        [(b"ringback-client-session-id", b"header")], b"client_session_id=query&correlation_id=c-1"
    )

    assert options == HttpOptions(client_session_id="header", correlation_id="c-1")


def test_headers_and_parameters_of_others_are_ignored() -> None:
    headers = [(b"authorization", b"Bearer x"), (b"x-session", b"\xff"), (b"ringbackish", b"")]

    assert read_http_options(headers, b"api_key=1&api_key=2&%FF=%00&sessionId=s&wait=20") == HttpOptions()
    assert not has_http_options(headers, b"api_key=1&wait=20")


@pytest.mark.parametrize("value", ["", "x" * 257, "a\nb", "\x00", "\x1f", "\u200b", "\ud800"])
def test_a_label_that_cannot_be_meant_is_refused_in_a_header_and_in_the_query(value: str) -> None:
    sent = value.encode("utf-8", "surrogatepass")
    with pytest.raises(InvalidRequest, match="Header Ringback-Correlation-Id must have 1 to 256 printable"):
        read_http_options([(b"ringback-correlation-id", sent)], b"")
    with pytest.raises(InvalidRequest, match="Query parameter correlation_id of the MCP URL must have 1 to 256"):
        read_http_options([], b"correlation_id=" + quote(sent).encode())


@pytest.mark.parametrize("encoded", [b"%FF", b"\xff", b"%C3", b"%ED%A0%80"])
def test_a_value_that_is_not_utf_8_is_refused(encoded: bytes) -> None:
    with pytest.raises(InvalidRequest, match="UTF-8"):
        read_http_options([], b"client_session_id=" + encoded)


def test_text_outside_ascii_is_read_as_utf_8_with_and_without_percent_encoding() -> None:
    raw = "sitzung-ü".encode()

    for options in (
        read_http_options([(b"ringback-client-session-id", raw)], b""),
        read_http_options([], b"client_session_id=" + raw),
        read_http_options([], b"client_session_id=" + quote(raw).encode()),
    ):
        assert options.client_session_id == "sitzung-ü"


@pytest.mark.parametrize(
    "query",
    [
        b"callback_url=https://agent.example/cb?v=1&sig=abc",
        b"wait=9&callback_url=https%3A%2F%2Fagent.example?v=1&sig=abc&client_session_id=s",
    ],
)
def test_a_callback_url_that_loses_a_part_of_its_query_is_refused(query: bytes) -> None:
    with pytest.raises(InvalidRequest, match="Percent-encode the whole value"):
        read_http_options([], query)


@pytest.mark.parametrize(
    "query",
    [
        b"callback_url=https://agent.example/cb?v=1",
        b"callback_url=https://agent.example/cb?v=1&client_session_id=s&api_key=k",
        b"callback_url=https://agent.example/cb?v%3D1&api_key=k",  # as yarl sends %3F
    ],
)
def test_a_callback_url_that_is_whole_may_have_a_query_in_plain_letters(query: bytes) -> None:
    assert read_http_options([], query).callback_url == "https://agent.example/cb?v=1"


@pytest.mark.parametrize("option", sorted(HEADERS))
def test_a_repeated_header_is_refused(option: str) -> None:
    with pytest.raises(InvalidRequest, match="is sent more than once"):
        read_http_options([(HEADERS[option], b"a"), (HEADERS[option], b"a")], b"")


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_repeated_parameter_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"Query parameter {name} of the MCP URL is sent more than once"):
        read_http_options([], f"{name}=a&{name}=a".encode())


@pytest.mark.parametrize("name", ["callback_secret", "callbackSecret", "Ringback-Callback-Secret", "callback%5Fsecret"])
def test_a_secret_in_the_url_is_refused_without_being_shown(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_http_options([], f"{name}=whsec_hidden".encode())

    assert "A secret must not be in a URL" in refused.value.detail
    assert "rotate-secret" in refused.value.detail
    assert "whsec_hidden" not in refused.value.detail


def test_an_idempotency_key_in_the_url_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="every call would have the same one"):
        read_http_options([], b"idempotency_key=k")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("clientSessionId", "client_session_id"),
        ("client-session-id", "client_session_id"),
        ("Ringback-Callback-Url", "callback_url"),
        ("CORRELATION_ID", "correlation_id"),
        ("webhook_id", "webhook"),
    ],
)
def test_a_parameter_in_another_spelling_is_refused_with_the_right_one(name: str, meant: str) -> None:
    with pytest.raises(InvalidRequest, match=f"Write {meant}="):
        read_http_options([], f"{name}=x".encode())


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("client_sesion_id", "Write client_session_id="),
        ("client-session", "Write client_session_id="),
        ("corelation_id", "Write correlation_id="),
        ("callback", "Write callback_url="),
        ("callback_uri", "Write callback_url="),
        ("webhooks", "Write webhook="),
        ("Wait", "Write wait="),
        ("wait_seconds", "Write wait="),
        ("calback_secret", "A secret must not be in a URL"),
        ("session", "Write client_session_id="),
        ("Correlation", "Write correlation_id="),
        ("ringback_session", "Write client_session_id="),
        ("url", "Write callback_url="),
        ("secret", "A secret must not be in a URL"),
        ("ringback_user", "The parameters are callback_url, client_session_id, correlation_id, webhook, wait"),
    ],
)
def test_a_parameter_that_resembles_an_option_is_refused_with_the_right_one(name: str, advice: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_http_options([], f"{name}=hidden".encode())

    assert advice in refused.value.detail
    assert "hidden" not in refused.value.detail


@pytest.mark.parametrize(
    "name", ["session_id", "sessionId", "profile", "key", "api_key", "token", "id", "client", "client_id", "x" * 5000]
)
def test_a_parameter_that_may_be_somebody_elses_is_ignored(name: str) -> None:
    assert read_http_options([], f"{name}=1".encode()) == HttpOptions()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        (b"ringback-client-sesion-id", "Did you mean Ringback-Client-Session-Id?"),
        (b"ringback-session-id", "Did you mean Ringback-Client-Session-Id?"),
        (b"ringback-callback", "Did you mean Ringback-Callback-Url?"),
        (b"ringback-webhook", "webhook=… and wait=… belong in the URL"),
        (b"ringback-", "The headers are Ringback-Client-Session-Id, "),
    ],
)
def test_an_unknown_header_with_our_prefix_is_refused_with_the_right_one(name: bytes, advice: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_http_options([(b"accept", b"*/*"), (name, b"hidden")], b"")

    assert advice in refused.value.detail
    assert "hidden" not in refused.value.detail


def test_the_cancel_key_is_no_option_and_no_unknown_header() -> None:
    assert read_http_options([(b"ringback-cancel-key", b"k")], b"") == HttpOptions()


def test_a_query_with_too_many_parameters_is_refused() -> None:
    allowed = b"&".join([b"a=1"] * (QUERY_PARAMETERS_MAX - 1))

    assert read_http_options([], allowed + b"&correlation_id=c").correlation_id == "c"
    with pytest.raises(InvalidRequest, match="at most"):
        read_http_options([], allowed + b"&a=1&correlation_id=c")


@pytest.mark.parametrize(
    ("values", "expected"),
    [([b"00-trace-01"], "00-trace-01"), ([], None), ([b""], None), ([b"a", b"b"], None), ([b"\xff"], None)],
)
def test_a_traceparent_header_that_is_unusable_is_ignored(values: list[bytes], expected: str | None) -> None:
    assert read_traceparent([(b"traceparent", value) for value in values]) == expected


names = st.sampled_from([*HEADERS.values(), b"traceparent", b"cookie", b"ringback-", b"ringback-callback"])
queries = st.binary(max_size=200) | st.lists(
    st.tuples(
        st.sampled_from([*PARAMETERS, "callback_secret", "idempotency_key", "a", ""]),
        st.text(max_size=300) | st.just("x" * 3000),
    ),
    max_size=80,
).map(lambda pairs: urlencode(pairs, errors="surrogatepass").encode())


def read_or_refuse(headers: list[tuple[bytes, bytes]], query: bytes) -> HttpOptions | InvalidRequest:
    try:
        return read_http_options(headers, query)
    except InvalidRequest as refused:
        return refused


@pytest.mark.requirement("R25")
@given(headers=st.lists(st.tuples(names, st.binary(max_size=300)), max_size=6), query=queries)
def test_any_headers_and_query_are_read_or_refused_and_bounded(
    headers: list[tuple[bytes, bytes]], query: bytes
) -> None:
    has_http_options(headers, query)
    read_traceparent(headers)
    options = read_or_refuse(headers, query)
    if isinstance(options, InvalidRequest):
        assert len(options.detail) < 500
        assert options.detail.isprintable()
        return
    for value in (options.client_session_id, options.correlation_id, options.idempotency_key):
        assert value is None or (0 < len(value) <= 256 and value.isprintable())
    assert options.callback_secret is None or len(options.callback_secret) <= 256
    assert options.webhook is None or len(options.webhook) <= 64
