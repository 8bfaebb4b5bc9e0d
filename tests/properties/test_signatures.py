"""Signatures and seals hold for every message, and for no message that differs in a single bit.

The published package `standardwebhooks` is the second opinion. It reads the machine's clock, so these messages are signed now.
"""

import base64
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from ringback.domain.clock import SystemClock
from ringback.signing.ed25519 import generate_signing_key, parse_signing_key
from ringback.signing.sealing import AesGcmSealer, UnsealError
from ringback.signing.secrets import generate_api_key, is_well_formed_api_key, parse_secret
from ringback.signing.standard_webhooks import VerificationError, build_signed_headers, sign_message, verify

CLOCK = SystemClock()
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

message_ids = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHJKMNPQRSTVWXYZ0123456789_-", min_size=1, max_size=64)
bodies = st.text(min_size=1).map(str.encode)
secrets = st.binary(min_size=24, max_size=64).map(lambda key: "whsec_" + base64.b64encode(key).decode())
data = st.data()


def flipped(original: bytes, bit: int) -> bytes:
    changed = bytearray(original)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def any_bit(draw: st.DataObject, original: bytes) -> bytes:
    return flipped(original, draw.draw(st.integers(0, len(original) * 8 - 1), label="bit"))


def any_bit_of_text(draw: st.DataObject, original: str) -> str:
    return any_bit(draw, original.encode()).decode("latin-1")


def assert_refused_by_both(headers: dict[str, str], body: bytes, secret: str, now: datetime) -> None:
    with pytest.raises(VerificationError):
        verify(headers, body, [secret], now=now)
    with pytest.raises((WebhookVerificationError, ValueError)):  # ValueError: their way to meet malformed bytes
        Webhook(secret).verify(body, headers, json_parse=False)


@pytest.mark.requirement("R23")
@given(message_ids, bodies, secrets)
def test_both_libraries_verify_our_signatures(message_id: str, body: bytes, secret: str) -> None:
    now = CLOCK.now()
    headers = build_signed_headers([secret], message_id=message_id, timestamp=int(now.timestamp()), body=body)

    assert verify(headers, body, [secret], now=now).message_id == message_id
    Webhook(secret).verify(body, headers, json_parse=False)


@pytest.mark.requirement("R23")
@given(message_ids, bodies, secrets)
def test_we_verify_their_signatures_and_sign_identically(message_id: str, body: bytes, secret: str) -> None:
    now = CLOCK.now()
    timestamp = int(now.timestamp())
    signature = Webhook(secret).sign(message_id, now, body.decode())
    headers = {"Webhook-Id": message_id, "Webhook-Timestamp": str(timestamp), "Webhook-Signature": signature}

    assert verify(headers, body, [secret], now=now).timestamp == timestamp
    assert signature == sign_message([secret], message_id=message_id, timestamp=timestamp, body=body)


@pytest.mark.requirement("R23")
@given(message_ids, bodies, secrets, secrets, secrets)
def test_a_receiver_with_either_secret_verifies_during_a_rotation(
    message_id: str, body: bytes, old: str, new: str, stranger: str
) -> None:
    now = CLOCK.now()
    headers = build_signed_headers([new, old], message_id=message_id, timestamp=int(now.timestamp()), body=body)

    for secret in (old, new):
        assert verify(headers, body, [stranger, secret], now=now).message_id == message_id
        Webhook(secret).verify(body, headers, json_parse=False)


@pytest.mark.requirement("R23")
@given(message_ids, bodies, secrets, data)
def test_a_message_with_one_bit_changed_never_verifies(
    message_id: str, body: bytes, secret: str, draw: st.DataObject
) -> None:
    """In each of its five parts: 10,000 messages in the deep profile."""
    now = CLOCK.now()
    headers = build_signed_headers([secret], message_id=message_id, timestamp=int(now.timestamp()), body=body)
    mac = base64.b64decode(headers["webhook-signature"].removeprefix("v1,"))
    other_mac = "v1," + base64.b64encode(any_bit(draw, mac)).decode()
    other_secret = "whsec_" + base64.b64encode(any_bit(draw, parse_secret(secret))).decode()
    other_time = any_bit_of_text(draw, headers["webhook-timestamp"])

    assert_refused_by_both(headers, any_bit(draw, body), secret, now)
    assert_refused_by_both({**headers, "webhook-id": any_bit_of_text(draw, message_id)}, body, secret, now)
    assert_refused_by_both({**headers, "webhook-timestamp": other_time}, body, secret, now)
    assert_refused_by_both({**headers, "webhook-signature": other_mac}, body, secret, now)
    assert_refused_by_both(headers, body, other_secret, now)


@pytest.mark.requirement("R23")
@given(message_ids, bodies, st.binary(min_size=32, max_size=32), data)
def test_an_ed25519_signature_holds_for_its_message_and_for_none_that_differs_in_one_bit(
    message_id: str, body: bytes, seed: bytes, draw: st.DataObject
) -> None:
    now = CLOCK.now()
    key = parse_signing_key(generate_signing_key(seed))
    signed = sign_message([SECRET], message_id=message_id, timestamp=int(now.timestamp()), body=body, keys=[key])
    headers = {"webhook-id": message_id, "webhook-timestamp": str(int(now.timestamp())), "webhook-signature": signed}
    text = signed.rpartition(" ")[2]

    assert verify(headers, body, [key.public_key], now=now).message_id == message_id
    with pytest.raises(VerificationError):
        verify(headers, any_bit(draw, body), [key.public_key], now=now)
    with pytest.raises(VerificationError):
        verify({**headers, "webhook-signature": any_bit_of_text(draw, text)}, body, [key.public_key], now=now)


@given(message_ids, bodies, secrets, data)
def test_a_signature_whose_text_differs_in_one_bit_is_none_to_us(
    message_id: str, body: bytes, secret: str, draw: st.DataObject
) -> None:
    now = CLOCK.now()
    headers = build_signed_headers([secret], message_id=message_id, timestamp=int(now.timestamp()), body=body)
    headers["webhook-signature"] = any_bit_of_text(draw, headers["webhook-signature"])

    with pytest.raises(VerificationError):
        verify(headers, body, [secret], now=now)


@given(
    st.dictionaries(st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "x"]), st.text()),
    st.binary(),
    secrets,
)
def test_nothing_but_a_verification_error_comes_of_arbitrary_headers(
    headers: dict[str, str], body: bytes, secret: str
) -> None:
    with pytest.raises(VerificationError):
        verify(headers, body, [secret], now=CLOCK.now())


@given(st.binary(max_size=300), st.text(), st.binary(min_size=32, max_size=32), st.binary(min_size=12, max_size=12))
def test_a_seal_opens_at_its_place(plaintext: bytes, place: str, key: bytes, nonce: bytes) -> None:
    sealer = AesGcmSealer({"k": key}, current="k", random_bytes=lambda _: nonce)

    assert sealer.unseal(sealer.seal(plaintext, associated_data=place), associated_data=place) == plaintext


@given(st.binary(max_size=300), st.text(), st.text(), data)
def test_a_seal_that_was_moved_or_changed_in_one_bit_never_opens(
    plaintext: bytes, place: str, other: str, draw: st.DataObject
) -> None:
    sealer = AesGcmSealer({"k1": b"1" * 32, "k2": b"2" * 32}, current="k1", random_bytes=bytes)
    sealed = sealer.seal(plaintext, associated_data=place)

    with pytest.raises(UnsealError):
        sealer.unseal(sealed, associated_data=other if other != place else place + "/")
    with pytest.raises(UnsealError):
        sealer.unseal(any_bit(draw, sealed), associated_data=place)


@given(st.binary())
def test_nothing_but_an_unseal_error_comes_of_arbitrary_bytes(ciphertext: bytes) -> None:
    sealer = AesGcmSealer({"k": b"1" * 32}, current="k", random_bytes=bytes)

    with pytest.raises(UnsealError):
        sealer.unseal(ciphertext, associated_data="anywhere")


@given(st.binary(min_size=24, max_size=24), st.binary(min_size=24, max_size=24))
def test_every_api_key_is_recognised_and_two_differ(one: bytes, other: bytes) -> None:
    assert is_well_formed_api_key(generate_api_key(one))
    assert (generate_api_key(one) == generate_api_key(other)) == (one == other)
