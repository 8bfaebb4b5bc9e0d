"""Standard Webhooks v1a against the reference server's vector, and against `cryptography` by itself."""

import json
from base64 import b64encode, urlsafe_b64decode
from datetime import UTC, datetime
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks import Webhook

from ringback.receiver import ReceiverApp
from ringback.signing.ed25519 import InvalidSigningKey, generate_signing_key, parse_signing_key
from ringback.signing.secrets import InvalidSecret
from ringback.signing.standard_webhooks import VerificationError, build_signed_headers, sign_message, verify

KEY = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
PUBLIC = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
MESSAGE_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
TIMESTAMP = 1614265330
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
"""Of the reference server of Standard Webhooks; Ed25519 is deterministic, so equal bytes mean the same scheme."""
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW = datetime.fromtimestamp(TIMESTAMP, UTC)
SIGNING = parse_signing_key(KEY)
OTHER = parse_signing_key(generate_signing_key(b"o" * 32))


def headers_of(signature: str) -> dict[str, str]:
    return {"webhook-id": MESSAGE_ID, "webhook-timestamp": str(TIMESTAMP), "webhook-signature": signature}


@pytest.mark.requirement("R23")
def test_the_reference_vector_is_signed_as_published() -> None:
    signed = sign_message([SECRET], message_id=MESSAGE_ID, timestamp=TIMESTAMP, body=BODY, keys=[SIGNING])

    assert signed.split(" ")[1] == SIGNATURE
    assert SIGNING.public_key == PUBLIC


@pytest.mark.requirement("R23")
def test_a_receiver_with_the_public_key_verifies_without_a_secret() -> None:
    assert verify(headers_of(SIGNATURE), BODY, [PUBLIC], now=NOW).message_id == MESSAGE_ID


@pytest.mark.requirement("R23")
def test_verifiers_that_know_v1_alone_still_accept_the_message() -> None:
    now = datetime.now(UTC)  # noqa: TID251 - standardwebhooks reads the machine's clock
    headers = build_signed_headers([SECRET], message_id=MESSAGE_ID, timestamp=int(now.timestamp()), body=BODY)
    headers["webhook-signature"] = " ".join(
        [SIGNING.sign_content(b"whatever"), headers["webhook-signature"], OTHER.sign_content(b"whatever")]
    )

    Webhook(SECRET).verify(BODY, headers, json_parse=False)
    verify(headers, BODY, [SECRET], now=now)


@pytest.mark.requirement("R23")
def test_while_keys_are_rotated_a_receiver_with_either_public_key_verifies() -> None:
    signed = sign_message([SECRET], message_id=MESSAGE_ID, timestamp=TIMESTAMP, body=BODY, keys=[OTHER, SIGNING])

    for public in (PUBLIC, OTHER.public_key):
        verify(headers_of(signed), BODY, [public], now=NOW)


@pytest.mark.parametrize(
    "signature",
    [
        SIGNATURE.replace("v1a,", "v1,"),
        SIGNATURE.replace("v1a,", "v1b,"),
        SIGNATURE.replace("hn", "hm"),
        SIGNATURE.removesuffix("=="),
        SIGNATURE.replace("g==", "h=="),  # other bits, the same bytes
        "v1a,",
        "v1a",
        OTHER.sign_content(b"another message"),
    ],
)
def test_any_other_signature_is_refused(signature: str) -> None:
    with pytest.raises(VerificationError):
        verify(headers_of(signature), BODY, [PUBLIC], now=NOW)


def test_a_public_key_verifies_no_hmac_and_a_secret_no_ed25519() -> None:
    hmac_of_public = sign_message(
        ["whsec_" + PUBLIC.removeprefix("whpk_")], message_id=MESSAGE_ID, timestamp=TIMESTAMP, body=BODY
    )
    with pytest.raises(VerificationError):
        verify(headers_of(hmac_of_public), BODY, [PUBLIC], now=NOW)
    with pytest.raises(VerificationError):
        verify(headers_of(SIGNATURE), BODY, [SECRET], now=NOW)


def test_a_seed_alone_is_the_same_key() -> None:
    seed = KEY.removeprefix("whsk_")[:43] + "="

    assert parse_signing_key(f"whsk_{seed[:-2]}c=").public_key == PUBLIC


def test_the_published_key_is_the_one_that_signs() -> None:
    x = SIGNING.jwk["x"]
    public = Ed25519PublicKey.from_public_bytes(urlsafe_b64decode(x + "="))
    public.verify(
        urlsafe_b64decode(SIGNATURE.removeprefix("v1a,").replace("/", "_").replace("+", "-")),
        f"{MESSAGE_ID}.{TIMESTAMP}.".encode() + BODY,
    )
    required = json.dumps({"crv": "Ed25519", "kty": "OKP", "x": x}, separators=(",", ":")).encode()

    assert urlsafe_b64decode(SIGNING.jwk["kid"] + "=") == sha256(required).digest()
    assert {name: SIGNING.jwk[name] for name in ("kty", "crv", "use", "alg")} == {
        "kty": "OKP",
        "crv": "Ed25519",
        "use": "sig",
        "alg": "EdDSA",
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "whsk_",
        PUBLIC,
        SECRET,
        KEY.removeprefix("whsk_"),
        KEY[:-4],
        KEY + "AAAA",
        KEY.replace("/", "_"),
        "whsk_" + b64encode(b"s" * 32 + b"p" * 32).decode(),
    ],
)
def test_an_invalid_signing_key_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(InvalidSigningKey) as refused:
        parse_signing_key(text)

    assert not text[5:] or text[5:] not in str(refused.value)


def test_a_private_key_is_never_in_a_repr() -> None:
    assert KEY[5:20] not in repr(SIGNING)


@pytest.mark.parametrize("text", ["whpk_", PUBLIC[:-5], PUBLIC.replace("=", "!"), KEY])
def test_an_invalid_public_key_is_refused_at_construction(text: str) -> None:
    with pytest.raises(InvalidSecret):
        ReceiverApp([text])


def test_a_receiver_takes_public_keys() -> None:
    ReceiverApp([PUBLIC, SECRET])
