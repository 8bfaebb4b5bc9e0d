"""Standard Webhooks v1 against the official vector, and what is wrong with a message in words."""

import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from http.client import parse_headers
from io import BytesIO

import pytest

from ringback.signing.secrets import InvalidSecret, generate_secret
from ringback.signing.standard_webhooks import (
    SIGNATURE_HEADER_LENGTH_MAX,
    VerificationError,
    build_signed_headers,
    sign_message,
    verify,
)

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_SECRET = generate_secret(b"o" * 32)
MESSAGE_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
TIMESTAMP = 1614265330
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
NOW = datetime.fromtimestamp(TIMESTAMP, UTC)

HEADERS = {"webhook-id": MESSAGE_ID, "webhook-timestamp": str(TIMESTAMP), "webhook-signature": SIGNATURE}


def refusal(headers: Mapping[str, str], *, now: datetime = NOW) -> str:
    with pytest.raises(VerificationError) as refused:
        verify(headers, BODY, [SECRET], now=now)
    return str(refused.value)


@pytest.mark.requirement("R23")
def test_the_official_vector_is_signed_as_published() -> None:
    assert sign_message([SECRET], message_id=MESSAGE_ID, timestamp=TIMESTAMP, body=BODY) == SIGNATURE
    assert build_signed_headers([SECRET], message_id=MESSAGE_ID, timestamp=TIMESTAMP, body=BODY) == HEADERS


@pytest.mark.requirement("R23")
def test_the_official_vector_verifies() -> None:
    message = verify(HEADERS, BODY, [SECRET], now=NOW)

    assert (message.message_id, message.timestamp) == (MESSAGE_ID, TIMESTAMP)


def test_names_of_headers_may_come_in_any_case() -> None:
    shouted = {name.upper(): value for name, value in HEADERS.items()}

    assert verify(shouted, BODY, [SECRET], now=NOW).message_id == MESSAGE_ID


def test_headers_of_the_server_of_the_standard_library_are_read() -> None:
    headers = parse_headers(BytesIO("".join(f"{name}: {value}\r\n" for name, value in HEADERS.items()).encode()))
    repeated = parse_headers(BytesIO(b"Webhook-Id: a\r\nWebhook-Id: b\r\n\r\n"))

    assert verify(headers, BODY, [SECRET], now=NOW).message_id == MESSAGE_ID
    with pytest.raises(VerificationError, match="repeated"):
        verify(repeated, BODY, [SECRET], now=NOW)


@pytest.mark.requirement("R23")
def test_during_a_rotation_every_secret_signs_and_either_verifies() -> None:
    headers = build_signed_headers([OTHER_SECRET, SECRET], message_id=MESSAGE_ID, timestamp=TIMESTAMP, body=BODY)

    assert headers["webhook-signature"].split(" ")[1] == SIGNATURE
    for known in ([SECRET], [OTHER_SECRET], [OTHER_SECRET, SECRET]):
        assert verify(headers, BODY, known, now=NOW).message_id == MESSAGE_ID


@pytest.mark.parametrize("age_seconds", [-300, -299, 0, 299, 300])
def test_a_timestamp_within_five_minutes_is_accepted(age_seconds: int) -> None:
    now = datetime.fromtimestamp(TIMESTAMP + age_seconds, UTC)

    assert verify(HEADERS, BODY, [SECRET], now=now).timestamp == TIMESTAMP


@pytest.mark.parametrize(("age_seconds", "reason"), [(301, "too old"), (-301, "too new")])
def test_a_timestamp_beyond_five_minutes_is_refused(age_seconds: int, reason: str) -> None:
    assert reason in refusal(HEADERS, now=datetime.fromtimestamp(TIMESTAMP + age_seconds, UTC))


@pytest.mark.parametrize("name", sorted(HEADERS))
@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_header_is_named(name: str, value: str | None) -> None:
    kept = {other: text for other, text in HEADERS.items() if other != name}

    assert refusal(kept if value is None else {**kept, name: value}) == f"The header {name} is missing."


@pytest.mark.parametrize(
    "value", ["soon", "-1", "1614265330.5", " 1614265330", "1e9", "١٦١٤٢٦٥٣٣٠", "9" * 13, "\ud800"]
)
def test_a_timestamp_that_is_no_plain_number_is_malformed(value: str) -> None:
    assert refusal({**HEADERS, "webhook-timestamp": value}) == "The header webhook-timestamp is malformed."


@pytest.mark.parametrize("value", ["a.b", "a b", "a\r\nb", "ü", "\ud800", "x" * 257])
def test_an_id_that_cannot_be_signed_is_malformed(value: str) -> None:
    assert refusal({**HEADERS, "webhook-id": value}) == "The header webhook-id is malformed."


@pytest.mark.parametrize(
    "value",
    [
        ",",
        "v1",
        "v1,",
        " ",
        "v1,,,",
        "v1,not base64!",
        "v1 " + SIGNATURE.removeprefix("v1,"),
        "v1a," + SIGNATURE.removeprefix("v1,"),
        "v2," + SIGNATURE.removeprefix("v1,"),
        SIGNATURE.rstrip("="),
        SIGNATURE + "=",
        SIGNATURE.replace("1OE=", "1OF="),  # the same bytes in another spelling
    ],
)
def test_a_list_without_a_matching_v1_signature_is_refused(value: str) -> None:
    assert "No signature matches" in refusal({**HEADERS, "webhook-signature": value})


@pytest.mark.parametrize("value", ["v1,\ud800", "v1,ü", SIGNATURE + " " * SIGNATURE_HEADER_LENGTH_MAX])
def test_a_list_that_no_sender_writes_is_malformed(value: str) -> None:
    assert refusal({**HEADERS, "webhook-signature": value}) == "The header webhook-signature is malformed."


@pytest.mark.parametrize("noise", ["v1a,QUJD", "v9,whatever", "v1,QUJD", "", "garbage", ",,"])
def test_unknown_versions_and_foreign_signatures_do_not_hide_the_right_one(noise: str) -> None:
    headers = {**HEADERS, "webhook-signature": f"{noise} {SIGNATURE} {noise}"}

    assert verify(headers, BODY, [SECRET], now=NOW).message_id == MESSAGE_ID


def test_without_a_secret_nothing_verifies_and_nothing_is_signed() -> None:
    with pytest.raises(VerificationError):
        verify(HEADERS, BODY, [], now=NOW)
    with pytest.raises(ValueError, match="at least one secret"):
        sign_message([], message_id=MESSAGE_ID, timestamp=TIMESTAMP, body=BODY)


@pytest.mark.parametrize("message_id", ["", "evt.1", "evt 1", "evt\r\nx: y", "ü", "x" * 257])
def test_an_id_that_could_be_mistaken_is_not_signed(message_id: str) -> None:
    with pytest.raises(ValueError, match="message id"):
        sign_message([SECRET], message_id=message_id, timestamp=TIMESTAMP, body=BODY)


def test_a_wrong_secret_of_our_own_is_not_blamed_on_the_sender() -> None:
    with pytest.raises(InvalidSecret):
        verify(HEADERS, BODY, ["whsec_short"], now=NOW)


def test_a_forged_message_is_hashed_once_for_each_secret_however_many_signatures_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed: list[bytes] = []
    update = hmac.HMAC.update

    def count_update(keyed: hmac.HMAC, content: bytes) -> None:
        hashed.append(content)
        update(keyed, content)

    forged = {**HEADERS, "webhook-signature": " ".join(["v1," + "A" * 43 + "="] * 80)}
    monkeypatch.setattr(hmac.HMAC, "update", count_update)

    with pytest.raises(VerificationError, match="No signature matches"):
        verify(forged, BODY, [SECRET, OTHER_SECRET], now=NOW)

    assert len(hashed) == 2
