"""Headers that owners add to callbacks: what is accepted, and that no stored text repeats a value."""

import pytest

from ringback.domain.callback_headers import (
    HEADER_VALUE_LENGTH_MAX,
    HEADERS_LENGTH_MAX,
    HEADERS_MAX,
    parse_headers,
    redact_header_values,
)
from ringback.notifier.http.sender import ADDED_HEADERS
from ringback.notifier.payload import build_callback_headers
from tests.support.clock import START
from tests.support.examples import WEBHOOK

KEY = "gateway-key-7f3a"


def test_names_are_stored_in_lower_case_and_sorted() -> None:
    assert parse_headers({"X-Tenant": "reports", "Authorization": " Bearer a "}) == (
        ("authorization", "Bearer a"),
        ("x-tenant", "reports"),
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"": "a"},
        {"two words": "a"},
        {"colon:": "a"},
        {"x-é": "a"},
        {"x" * 65: "a"},
        {"x-empty": ""},
        {"x-line": "a\r\nhost: evil"},
        {"x-nul": "a\0"},
        {"x-utf8": "é"},
        {"x-long": "a" * (HEADER_VALUE_LENGTH_MAX + 1)},
        {"X-Same": "a", "x-same": "b"},
        {f"x-{number}": "a" for number in range(HEADERS_MAX + 1)},
        {f"x-part-{number}": "a" * (HEADERS_LENGTH_MAX // 2) for number in range(3)},
        {"Connection": "close"},
        {"Transfer-Encoding": "chunked"},
        {"Content-Length": "0"},
        {"Host": "evil.example"},
        {"Expect": "100-continue"},
        {"Proxy-Authorization": "Basic a"},
        {"Webhook-Signature": "v1,a"},
        {"X-MCP-Subscription-Id": "sub_1"},
        {"Content-Type": "text/plain"},
        {"User-Agent": "curl"},
    ],
    ids=lambda headers: next(iter(headers), "none")[:20],
)
def test_a_header_that_could_change_the_request_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"\.$") as refused:
        parse_headers(headers)

    assert "evil" not in str(refused.value)


def test_no_header_of_ours_can_be_set_by_an_owner() -> None:
    ours = build_callback_headers(
        webhook_id=WEBHOOK.id,
        message_id="evt_1",
        body=b"{}",
        secrets=[secret.value for secret in WEBHOOK.secrets],
        now=START,
    )
    for name in {*ours, *ADDED_HEADERS}:
        with pytest.raises(ValueError, match="cannot be set"):
            parse_headers({name: "a"})


@pytest.mark.parametrize("text", [f"you sent {KEY} here", f"cut off: {KEY[:9]}", f"{KEY}{KEY}"])
def test_an_echoed_value_is_removed_also_when_the_text_cuts_it_off(text: str) -> None:
    redacted = redact_header_values(text, (("x-key", KEY),))

    assert KEY[:6] not in redacted


def test_a_value_that_begins_with_another_value_is_removed_as_a_whole() -> None:
    headers = (("x-a", "secret-1"), ("x-b", "secret-1-and-more-9f"))

    assert redact_header_values("secret-1-and-more-9f, secret-1.", headers) == "[x-b], [x-a]."
    assert redact_header_values("got secret-1-and-more", headers) == "got "


def test_a_short_value_removes_no_ordinary_words() -> None:
    assert redact_header_values("it is on", (("x-flag", "on"),)) == "it is on"


@pytest.mark.parametrize(
    "echo",
    [
        '{"authorization": "Basic a\\/b+c&d=="}',
        '{"authorization": "Basic a/b+c\\u0026d=="}',
        '{"authorization": "Basic a/b\\u002Bc\\u0026d=="}',
        "<dd>Basic a/b+c&amp;d==</dd>",
        "?authorization=Basic%20a%2Fb%2Bc%26d%3D%3D",
        '{"authorization": "Basic a\\/b+c&d',
    ],
)
def test_a_value_is_removed_as_an_echo_writes_it(echo: str) -> None:
    redacted = redact_header_values(echo, (("authorization", "Basic a/b+c&d=="),))

    assert "Basic" not in redacted
