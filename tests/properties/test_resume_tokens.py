"""Resume tokens hold for all claims, and no forgery is read."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.signing.resume_token import ExpiredResumeToken, InvalidResumeToken, ResumeClaims, ResumeTokenCodec

NOW = datetime(2026, 11, 20, 17, tzinfo=UTC)
AUDIENCE = "https://ringback.example"
TOKENS = ResumeTokenCodec([b"a" * 32], audience=AUDIENCE)

keys = st.binary(min_size=32, max_size=64)
lifetimes_seconds = st.integers(1, 10**9)
claims = st.builds(
    ResumeClaims,
    call_id=st.text("0123456789ABCDEFGHJKMNPQRSTVWXYZ", min_size=26, max_size=26).map("call_".__add__),
    principal=st.text(min_size=1, max_size=128),
    token_version=st.integers(1, 2**31),
    cursor_seq=st.integers(0, 2**63 - 1),
    expires_at=lifetimes_seconds.map(lambda seconds: int(NOW.timestamp()) + seconds),
)


@pytest.mark.requirement("R24")
@given(claims, st.lists(keys, min_size=1, max_size=4, unique=True), st.text(), st.data())
def test_a_token_is_read_by_every_service_that_knows_its_key(
    issued: ResumeClaims, ring: list[bytes], audience: str, draw: st.DataObject
) -> None:
    signer = draw.draw(st.sampled_from(ring))
    token = ResumeTokenCodec([signer], audience=audience).encode_token(issued)

    assert ResumeTokenCodec(ring, audience=audience).decode_token(token, principal=issued.principal, now=NOW) == issued


@pytest.mark.requirement("R24")
@given(claims, st.text(), st.text(), keys)
def test_another_principal_audience_or_key_reads_nothing(
    issued: ResumeClaims, principal: str, audience: str, key: bytes
) -> None:
    token = TOKENS.encode_token(issued)
    readers = [
        (TOKENS, principal if principal != issued.principal else principal + "x"),
        (ResumeTokenCodec([b"a" * 32], audience=audience), issued.principal),
        (ResumeTokenCodec([key + b"x"], audience=AUDIENCE), issued.principal),
    ]

    for tokens, reader in readers:
        with pytest.raises(InvalidResumeToken):
            tokens.decode_token(token, principal=reader, now=NOW)


@pytest.mark.requirement("R24")
@given(claims, st.data())
def test_a_token_with_one_bit_changed_is_never_read(issued: ResumeClaims, draw: st.DataObject) -> None:
    """Three times each: with those that are put together of two, and cut off, 12,000 in the deep profile."""
    original = TOKENS.encode_token(issued).encode()
    bits = draw.draw(st.lists(st.integers(0, len(original) * 8 - 1), min_size=3, max_size=3, unique=True))

    for bit in bits:
        changed = bytearray(original)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InvalidResumeToken):
            TOKENS.decode_token(changed.decode("latin-1"), principal=issued.principal, now=NOW)


@pytest.mark.requirement("R24")
@given(claims, st.data())
def test_a_token_that_was_cut_off_is_never_read(issued: ResumeClaims, draw: st.DataObject) -> None:
    token = TOKENS.encode_token(issued)
    length = draw.draw(st.integers(0, len(token) - 1))

    with pytest.raises(InvalidResumeToken):
        TOKENS.decode_token(token[:length], principal=issued.principal, now=NOW)


@pytest.mark.requirement("R24")
@given(claims, st.integers(1, 100), st.integers(1, 100))
def test_a_mix_of_two_tokens_is_never_valid(issued: ResumeClaims, more: int, later: int) -> None:
    other = replace(issued, token_version=issued.token_version + more, expires_at=issued.expires_at + later)
    (payload, signature), (other_payload, other_signature) = (
        TOKENS.encode_token(each).split(".") for each in (issued, other)
    )

    for forged in (f"{payload}.{other_signature}", f"{other_payload}.{signature}"):
        with pytest.raises(InvalidResumeToken):
            TOKENS.decode_token(forged, principal=issued.principal, now=NOW)


@pytest.mark.requirement("R24")
@given(claims, lifetimes_seconds)
def test_after_its_expiry_a_token_says_so_to_its_own_principal_only(issued: ResumeClaims, late_seconds: int) -> None:
    token = TOKENS.encode_token(issued)
    late = datetime.fromtimestamp(issued.expires_at, UTC) + timedelta(seconds=late_seconds)

    with pytest.raises(ExpiredResumeToken):
        TOKENS.decode_token(token, principal=issued.principal, now=late)
    with pytest.raises(InvalidResumeToken):
        TOKENS.decode_token(token, principal=issued.principal + "x", now=late)


@given(st.text() | st.from_regex(r"\A[A-Za-z0-9_-]{1,200}\.[A-Za-z0-9_-]{85}[AQgw]\Z"), st.text())
def test_nothing_but_a_bad_token_comes_of_arbitrary_text(text: str, principal: str) -> None:
    with pytest.raises(InvalidResumeToken):
        TOKENS.decode_token(text, principal=principal, now=NOW)
