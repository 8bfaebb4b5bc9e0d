"""`verify` as users call it, and the keys of a published key set."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.datastructures import Headers

from ringback.receiver import VerificationError, public_keys_from_jwks, verify
from ringback.signing.ed25519 import generate_signing_key, parse_signing_key
from ringback.signing.secrets import generate_secret
from ringback.signing.standard_webhooks import build_signed_headers, sign_message
from tests.support.signed_posts import NOW, SECRET

BODY = b'{"eventId":"evt_1"}'
KEY = parse_signing_key(generate_signing_key(b"k" * 32))
OTHER_KEY = parse_signing_key(generate_signing_key(b"o" * 32))


def sign(at: datetime = NOW) -> dict[str, str]:
    return build_signed_headers([SECRET], message_id="evt_1", timestamp=int(at.timestamp()), body=BODY)


def sign_with_key() -> dict[str, str]:
    timestamp = int(NOW.timestamp())
    signatures = sign_message([SECRET], message_id="evt_1", timestamp=timestamp, body=BODY, keys=[KEY])
    return sign() | {"webhook-signature": signatures}


@pytest.mark.requirement("R23")
def test_the_shortest_call_has_headers_body_and_secret() -> None:
    now = datetime.now(UTC)  # noqa: TID251 - what verify reads by default

    assert verify(sign(now), BODY, SECRET).message_id == "evt_1"
    with pytest.raises(VerificationError, match="too old"):
        verify(sign(datetime(2020, 1, 1, tzinfo=UTC)), BODY, SECRET)


@pytest.mark.requirement("R23")
def test_any_of_several_secrets_is_accepted() -> None:
    assert verify(sign(), BODY, [generate_secret(b"n" * 32), SECRET], now=NOW).message_id == "evt_1"


def test_headers_may_be_pairs_or_a_framework_s_mapping() -> None:
    assert verify(list(sign().items()), BODY, SECRET, now=NOW).message_id == "evt_1"
    assert verify(Headers(sign()), BODY, SECRET, now=NOW).message_id == "evt_1"


@pytest.mark.parametrize("name", ["webhook-id", "Webhook-Timestamp", "webhook-signature"])
def test_a_repeated_header_is_rejected_because_the_caller_might_read_the_other_one(name: str) -> None:
    repeated = [(name, "evt_2"), *sign().items()]

    with pytest.raises(VerificationError, match="is repeated"):
        verify(repeated, BODY, SECRET, now=NOW)
    with pytest.raises(VerificationError, match="is repeated"):
        verify(Headers(raw=[(key.lower().encode(), value.encode()) for key, value in repeated]), BODY, SECRET, now=NOW)


@pytest.mark.parametrize("body", [BODY.decode(), json.loads(BODY), None])
def test_a_body_that_was_decoded_or_parsed_is_a_mistake_of_the_caller(body: Any) -> None:
    with pytest.raises(TypeError, match="raw body"):
        verify(sign(), body, SECRET, now=NOW)


@pytest.mark.requirement("R23")
def test_published_keys_verify_without_a_secret() -> None:
    ignored = [
        {"kty": "RSA", "n": "AQAB"},
        dict(KEY.jwk) | {"use": "enc"},
        dict(KEY.jwk) | {"x": "short"},
        "text",
        None,
    ]
    document = {"keys": [*ignored, dict(OTHER_KEY.jwk), dict(KEY.jwk)]}

    keys = public_keys_from_jwks(json.dumps(document).encode())

    assert keys == [OTHER_KEY.public_key, KEY.public_key] == public_keys_from_jwks(document)
    assert verify(sign_with_key(), BODY, keys, now=NOW).message_id == "evt_1"
    with pytest.raises(VerificationError, match="No signature matches"):
        verify(sign_with_key(), BODY, OTHER_KEY.public_key, now=NOW)


@pytest.mark.parametrize(
    "document", [b"{", b"[]", b"{}", b'{"keys":"none"}', b'{"keys":[]}', b'{"keys":[{"kty":"RSA"}]}']
)
def test_a_document_without_usable_keys_is_refused(document: bytes) -> None:
    with pytest.raises(ValueError, match=r"key|JSON|Expecting"):
        public_keys_from_jwks(document)


def test_the_reason_says_which_kind_of_signature_is_missing() -> None:
    with pytest.raises(VerificationError, match="no v1a signature"):
        verify(sign(), BODY, KEY.public_key, now=NOW)
    only_v1a = sign() | {"webhook-signature": KEY.sign_content(b"evt_1.0." + BODY)}
    with pytest.raises(VerificationError, match="no v1 signature"):
        verify(only_v1a, BODY, SECRET, now=NOW)
