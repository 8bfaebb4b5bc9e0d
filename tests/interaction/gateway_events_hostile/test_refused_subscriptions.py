"""Subscriptions with wrong members: each gets its error, no receiver gets a request, and nothing is stored."""

import base64
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interaction.gateway_events_hostile.conftest import (
    INVALID_PARAMS,
    NOT_FOUND,
    SECRET,
    UNSUPPORTED,
    EventsGate,
    encode,
    make_subscription,
    read_response,
)
from tests.support.receivers import Receiver
from tests.support.ssrf import BLOCKED_URLS

BEYOND_300_DIGITS: Final = 10**300
DEEP: Final = 200
LARGE_CHARACTERS: Final = 1_000_000


def nest(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = {"a": value}
    return value


WRONG_ARGUMENTS: Final[dict[str, Any]] = {
    "no object": [],
    "a text": "client_session_id",
    "an unknown argument": {"session": "s1"},
    "a number": {"client_session_id": 7},
    "null": {"client_session_id": None},
    "a list": {"client_session_id": ["s1"]},
    "an object": {"client_session_id": {"$ne": ""}},
    "deep nesting": {"client_session_id": nest(DEEP)},
    "not a number": {"client_session_id": float("nan")},
    "infinity": {"client_session_id": float("inf")},
    "a huge number": {"client_session_id": 10**400},
    "a megabyte": {"client_session_id": "x" * LARGE_CHARACTERS},
    "an unpaired surrogate": {"client_session_id": "\ud800"},
    "no text at all": {"\ud800": "x"},
}
WRONG_MEMBERS: Final[dict[str, tuple[int, dict[str, Any]]]] = {
    "no name": (INVALID_PARAMS, {"name": None}),
    "an empty name": (INVALID_PARAMS, {"name": ""}),
    "a number as name": (INVALID_PARAMS, {"name": 7}),
    "an unknown name": (NOT_FOUND, {"name": "call.Finished"}),
    "a name with a wildcard": (NOT_FOUND, {"name": "call.*"}),
    "no delivery": (INVALID_PARAMS, {"delivery": None}),
    "a text as delivery": (INVALID_PARAMS, {"delivery": "https://agent.example/"}),
    "a cursor that is a number": (INVALID_PARAMS, {"cursor": 5}),
    "a cursor that is an object": (INVALID_PARAMS, {"cursor": {"seq": 1}}),
    "a huge cursor": (INVALID_PARAMS, {"cursor": "x" * LARGE_CHARACTERS}),
    "a negative age": (INVALID_PARAMS, {"maxAgeMs": -1}),
    "a text as age": (INVALID_PARAMS, {"maxAgeMs": "60000"}),
    "no number as age": (INVALID_PARAMS, {"maxAgeMs": float("nan")}),
    "an infinite age": (INVALID_PARAMS, {"maxAgeMs": float("inf")}),
    "a negative lifetime": (INVALID_PARAMS, {"ttlMs": -1}),
    "a text as lifetime": (INVALID_PARAMS, {"ttlMs": "60000"}),
    "a truth value as lifetime": (INVALID_PARAMS, {"ttlMs": True}),
    "a lifetime of 301 digits": (INVALID_PARAMS, {"ttlMs": BEYOND_300_DIGITS}),
    "an infinite lifetime": (INVALID_PARAMS, {"ttlMs": float("inf")}),
    "another delivery mode": (
        UNSUPPORTED,
        {"delivery": {"mode": "push", "url": "https://a.example/", "secret": SECRET}},
    ),
    "an unknown delivery mode": (
        UNSUPPORTED,
        {"delivery": {"mode": "x" * 10_000, "url": "https://a.example/", "secret": SECRET}},
    ),
    "a number as delivery mode": (
        INVALID_PARAMS,
        {"delivery": {"mode": 1, "url": "https://a.example/", "secret": SECRET}},
    ),
}
WRONG_URLS: Final = (
    *("", "agent.example", "//agent.example/", "ftp://agent.example/", "javascript:alert(1)", "file:///etc/passwd"),
    *("http://agent.example/hook", "https://", "https://:443/", "https:///hook", "HTTP://agent.example/"),
    *("https://user@agent.example/", "https://user:pass@agent.example/", "https://agent.example/#x", "https://a b/"),
    *(
        "https://agent.example:0/",
        "https://agent.example:99999/",
        "https://agent.example/\r\nHost: evil",
        "https://agent.example\\",
    ),
    "https://agent.example/" + "x" * 10_000,
    *("https://10.0.0.1/", "https://169.254.169.254/", "https://[fd00::1]/"),
)
PRIVATE_URLS: Final = tuple(url for url in BLOCKED_URLS if "127.0.0.1" not in url)[::7]
"""Some of those that callbacks over REST must not open a socket for; the tests' own receivers are on 127.0.0.1."""
wrong_secrets = (
    st.text()
    | st.none()
    | st.integers()
    | st.lists(st.text())
    | st.binary(max_size=23).map(lambda raw: f"whsec_{base64.b64encode(raw).decode()}")
    | st.binary(min_size=65, max_size=200).map(lambda raw: f"whsec_{base64.b64encode(raw).decode()}")
    | st.binary(min_size=24, max_size=64).map(lambda raw: f"WHSEC_{base64.b64encode(raw).decode()}")
    | st.binary(min_size=24, max_size=64).map(lambda raw: f"whsec_{base64.b64encode(raw).decode()}\n")
    | st.binary(min_size=24, max_size=64).map(lambda raw: f"whsec_ {base64.b64encode(raw).decode()}")
)


async def refuse(gate: EventsGate, params: Any, code: int, *, method: str = "events/subscribe") -> str:
    """Send params that must be refused with this code; nothing is stored. Returns the whole error."""
    before = gate.count_rows()
    answer = await gate.send(method, params)
    assert answer.get("error", {}).get("code") == code, answer
    assert gate.count_rows() == before
    return str(answer["error"])


@pytest.mark.parametrize("what", sorted(WRONG_ARGUMENTS))
@pytest.mark.parametrize("method", ["events/subscribe", "events/poll", "events/stream"])
async def test_arguments_against_the_schema_are_invalid_params_in_every_mode(
    gate: EventsGate, receiver: Receiver, method: str, what: str
) -> None:
    params = make_subscription(receiver.url(), arguments=WRONG_ARGUMENTS[what])

    error = await refuse(gate, params, INVALID_PARAMS, method=method)

    assert "InvalidParams" in error or "unstorable-message" in error, (
        "what is no JSON for any method is refused before the method is known"
    )
    assert len(error) < 2_000
    assert not receiver.requests


@pytest.mark.parametrize("what", sorted(WRONG_MEMBERS))
async def test_a_wrong_member_is_refused_by_its_own_error(gate: EventsGate, receiver: Receiver, what: str) -> None:
    code, members = WRONG_MEMBERS[what]

    error = await refuse(gate, make_subscription(receiver.url(), **members), code)

    assert len(error) < 2_000
    assert not receiver.requests


async def test_params_that_are_no_object_are_invalid(gate: EventsGate) -> None:
    for params in ([], ["call.finished"], "call.finished", 7, None):
        answer = await gate.send("events/subscribe", params)
        assert answer["error"]["code"] in {INVALID_PARAMS, -32600}, params


@pytest.mark.parametrize("url", WRONG_URLS, ids=range(len(WRONG_URLS)))
async def test_a_malformed_url_or_one_without_https_is_invalid_params(gate: EventsGate, url: str) -> None:
    await refuse(gate, make_subscription(url), INVALID_PARAMS)


@pytest.mark.parametrize("url", PRIVATE_URLS, ids=range(len(PRIVATE_URLS)))
async def test_a_private_target_is_refused_before_anything_is_stored(gate: EventsGate, url: str) -> None:
    before = gate.count_rows()
    answer = await gate.send("events/subscribe", make_subscription(url))
    assert answer["error"]["code"] in {INVALID_PARAMS, -32015}, answer
    assert gate.count_rows() == before


@given(secret=wrong_secrets)
async def test_a_secret_of_another_shape_is_invalid_params_and_is_not_repeated(
    gate: EventsGate, receiver: Receiver, secret: Any
) -> None:
    error = await refuse(gate, make_subscription(receiver.url(), secret=secret), INVALID_PARAMS)

    shown = isinstance(secret, str) and len(secret) > len("whsec_") and secret in error
    assert not shown
    assert not receiver.requests


async def test_a_subscription_without_a_secret_or_a_url_is_invalid(gate: EventsGate) -> None:
    for delivery in ({}, {"url": "https://agent.example/"}, {"secret": SECRET}, {"mode": "webhook"}):
        await refuse(gate, make_subscription("", delivery=delivery), INVALID_PARAMS)


async def test_the_last_of_two_equal_keys_counts_or_the_request_is_refused(
    gate: EventsGate, receiver: Receiver
) -> None:
    body = encode("events/subscribe", make_subscription(receiver.url(), arguments={"client_session_id": "s1"}))
    twice = body.replace(b'"client_session_id": "s1"', b'"client_session_id": "s0", "client_session_id": 7')
    assert twice != body

    answer = read_response(await gate.post(twice, method="events/subscribe"))

    assert answer["error"]["code"] in {INVALID_PARAMS, -32700, -32600}
    assert not receiver.requests


@pytest.mark.parametrize("member", ["maxAgeMs", "ttlMs"])
@pytest.mark.parametrize("value", [0, 1, 0.5, 1e15, 2**53, 2**63, 1e300])
async def test_any_other_number_of_milliseconds_is_clamped(
    gate: EventsGate, receiver: Receiver, member: str, value: float
) -> None:
    url = receiver.url(f"/{member}-{value}")

    granted = (await gate.send("events/subscribe", make_subscription(url, **{member: value})))["result"]

    assert granted["refreshBefore"].endswith("Z")
    ended = await gate.send("events/unsubscribe", {"name": "call.finished", "arguments": {}, "delivery": {"url": url}})
    assert "result" in ended
