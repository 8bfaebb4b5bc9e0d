"""Resume tokens: who may read which, and when."""

import base64
import hashlib
import json
import zlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from itsdangerous import Serializer, URLSafeSerializer, URLSafeTimedSerializer

from ringback.signing.resume_token import (
    TOKEN_LENGTH_MAX,
    ExpiredResumeToken,
    InvalidResumeToken,
    ResumeClaims,
    ResumeTokenCodec,
)

OLD_KEY, KEY, NEW_KEY = b"a" * 32, b"b" * 32, b"c" * 32
AUDIENCE = "https://ringback.example"
NOW = datetime(2026, 11, 20, 17, tzinfo=UTC)
CLAIMS = ResumeClaims(
    call_id="call_01JD00000000000000000000AA",
    principal="ada@example.com",
    token_version=3,
    cursor_seq=42,
    expires_at=int(NOW.timestamp()) + 3600,
)
TOKENS = ResumeTokenCodec([KEY], audience=AUDIENCE)


def read(token: str, *, tokens: ResumeTokenCodec = TOKENS, principal: str = CLAIMS.principal) -> ResumeClaims:
    return tokens.decode_token(token, principal=principal, now=NOW)


def sign_with_our_key(payload: bytes) -> str:
    """A token whose signature is right, around whatever is to be tried."""
    salt = "ringback.resume-token.1" + json.dumps([AUDIENCE, CLAIMS.principal])
    signer = Serializer(
        KEY, salt=salt, signer_kwargs={"key_derivation": "hmac", "digest_method": hashlib.sha512}
    ).make_signer()
    return signer.sign(payload).decode()


def encoded(payload: Any) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(payload).encode()).rstrip(b"=")


GOOD_PAYLOAD: dict[str, Any] = {"call": CLAIMS.call_id, "version": 3, "seq": 42, "expires": CLAIMS.expires_at}


def test_the_forging_helper_of_these_tests_would_succeed_with_a_good_payload() -> None:
    assert read(sign_with_our_key(encoded(GOOD_PAYLOAD))) == CLAIMS


@pytest.mark.requirement("R24")
def test_a_token_reads_back_as_it_was_issued() -> None:
    token = TOKENS.encode_token(CLAIMS)

    assert read(token) == CLAIMS
    assert len(token) < TOKEN_LENGTH_MAX / 4


@pytest.mark.requirement("R24")
def test_the_newest_key_signs_and_previous_keys_still_verify() -> None:
    rotated = ResumeTokenCodec([OLD_KEY, KEY, NEW_KEY], audience=AUDIENCE)
    fresh = rotated.encode_token(CLAIMS)

    assert read(TOKENS.encode_token(CLAIMS), tokens=rotated) == CLAIMS
    assert read(fresh, tokens=ResumeTokenCodec([NEW_KEY], audience=AUDIENCE)) == CLAIMS
    with pytest.raises(InvalidResumeToken):
        read(fresh)


@pytest.mark.requirement("R24")
def test_a_token_of_another_principal_is_none_even_when_it_has_expired() -> None:
    token = TOKENS.encode_token(replace(CLAIMS, expires_at=0))

    with pytest.raises(ExpiredResumeToken):
        read(token)
    with pytest.raises(InvalidResumeToken):
        read(token, principal="eve@example.com")


@pytest.mark.requirement("R24")
@pytest.mark.parametrize(
    ("issuer", "issued"),
    [
        pytest.param(ResumeTokenCodec([KEY], audience="https://other.example"), CLAIMS, id="wrong audience"),
        pytest.param(ResumeTokenCodec([OLD_KEY], audience=AUDIENCE), CLAIMS, id="dropped key"),
        pytest.param(TOKENS, replace(CLAIMS, principal="eve@example.com"), id="wrong principal"),
        pytest.param(
            ResumeTokenCodec([KEY], audience=f'{AUDIENCE}", "ada'),
            replace(CLAIMS, principal="@example.com"),
            id="shifted bounds",
        ),
    ],
)
def test_a_token_made_for_other_circumstances_is_refused(issuer: ResumeTokenCodec, issued: ResumeClaims) -> None:
    with pytest.raises(InvalidResumeToken):
        read(issuer.encode_token(issued))


@pytest.mark.requirement("R24")
@pytest.mark.parametrize("serializer", [Serializer, URLSafeSerializer, URLSafeTimedSerializer])
@pytest.mark.parametrize("salt", ["itsdangerous", "ringback.resume-token.1", "session"])
def test_a_signature_of_the_same_key_for_another_purpose_is_refused(
    serializer: type[Serializer[str]], salt: str
) -> None:
    made = serializer(KEY, salt=salt, signer_kwargs={"key_derivation": "hmac", "digest_method": hashlib.sha512})

    with pytest.raises(InvalidResumeToken):
        read(made.dumps(GOOD_PAYLOAD))


@pytest.mark.requirement("R24")
def test_a_token_cut_anywhere_is_refused() -> None:
    token = TOKENS.encode_token(CLAIMS)

    for length in range(len(token)):
        with pytest.raises(InvalidResumeToken):
            read(token[:length])


@pytest.mark.requirement("R24")
def test_payloads_and_signatures_cannot_be_swapped() -> None:
    one, other = (
        TOKENS.encode_token(CLAIMS).split("."),
        TOKENS.encode_token(replace(CLAIMS, token_version=4)).split("."),
    )

    for swapped in (f"{one[0]}.{other[1]}", f"{other[0]}.{one[1]}"):
        with pytest.raises(InvalidResumeToken):
            read(swapped)


@pytest.mark.requirement("R24")
def test_a_token_is_good_until_the_second_of_its_expiry() -> None:
    token = TOKENS.encode_token(CLAIMS)
    expiry = datetime.fromtimestamp(CLAIMS.expires_at, UTC)

    assert TOKENS.decode_token(token, principal=CLAIMS.principal, now=expiry - timedelta(milliseconds=1)) == CLAIMS
    with pytest.raises(ExpiredResumeToken):
        TOKENS.decode_token(token, principal=CLAIMS.principal, now=expiry)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param([], id="no object"),
        pytest.param(7, id="a number"),
        pytest.param({}, id="nothing in it"),
        pytest.param({**GOOD_PAYLOAD, "admin": True}, id="an unknown member"),
        pytest.param({name: value for name, value in GOOD_PAYLOAD.items() if name != "expires"}, id="no expiry"),
        pytest.param({**GOOD_PAYLOAD, "expires": None}, id="endless"),
        pytest.param({**GOOD_PAYLOAD, "expires": 1e300}, id="a fraction"),
        pytest.param({**GOOD_PAYLOAD, "version": True}, id="a boolean"),
        pytest.param({**GOOD_PAYLOAD, "call": 7}, id="a call that is a number"),
    ],
)
def test_a_signed_payload_of_another_form_is_refused(payload: Any) -> None:
    with pytest.raises(InvalidResumeToken):
        read(sign_with_our_key(encoded(payload)))


def test_a_signed_payload_is_never_inflated() -> None:
    compressed = base64.urlsafe_b64encode(zlib.compress(json.dumps(GOOD_PAYLOAD).encode())).rstrip(b"=")

    for payload in (b"." + compressed, compressed, b"no-json"):
        with pytest.raises(InvalidResumeToken):
            read(sign_with_our_key(payload))


def test_an_oversized_token_is_refused_even_if_its_signature_is_right() -> None:
    token = sign_with_our_key(encoded({**GOOD_PAYLOAD, "call": "c" * TOKEN_LENGTH_MAX}))

    with pytest.raises(InvalidResumeToken):
        read(token)


@pytest.mark.parametrize("text", ["", ".", "..", "é", "\ud800.\ud800", "\0", "a.b", "a" * 1024, "." * 1024])
def test_malformed_text_is_an_invalid_token(text: str) -> None:
    with pytest.raises(InvalidResumeToken):
        read(text)


def test_a_token_has_one_spelling() -> None:
    token = TOKENS.encode_token(CLAIMS)

    for other in (token + "=", token + "==", token + "\n", token[:-1] + chr(ord(token[-1]) + 1)):
        with pytest.raises(InvalidResumeToken):
            read(other)


def test_neither_the_principal_nor_the_audience_can_be_read_in_a_token() -> None:
    payload = TOKENS.encode_token(CLAIMS).split(".")[0]

    assert json.loads(base64.urlsafe_b64decode(payload + "==")) == GOOD_PAYLOAD


@pytest.mark.parametrize("keys", [[], [b""], ["secret"], [KEY, b"short"]])
def test_weak_keys_are_refused_at_the_start(keys: list[bytes | str]) -> None:
    with pytest.raises(ValueError, match="32 random bytes"):
        ResumeTokenCodec(keys, audience=AUDIENCE)
