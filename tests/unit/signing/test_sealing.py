"""Sealing at rest: the format, the ring, and what cannot be opened."""

import os
from itertools import count

import pytest

from ringback.domain.encryption import Sealer
from ringback.signing.sealing import AesGcmSealer, InvalidKeyRing, UnsealError, generate_key_ring_entry, parse_key_ring

OLD_KEY, NEW_KEY = b"o" * 32, b"n" * 32
PLACE = "webhooks/wh_1/secrets"
PLAINTEXT = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def sealer(**keys: bytes) -> AesGcmSealer:
    """Seals with the first key."""
    return AesGcmSealer(keys, current=next(iter(keys)), random_bytes=os.urandom)


def test_sealed_values_are_unsealed_with_their_associated_data() -> None:
    seals: Sealer = sealer(old=OLD_KEY)

    assert seals.unseal(seals.seal(PLAINTEXT, associated_data=PLACE), associated_data=PLACE) == PLAINTEXT


def test_a_sealed_value_shows_version_key_and_nonce_and_nothing_of_the_plaintext() -> None:
    numbers = count(1)
    seals = AesGcmSealer({"k1": OLD_KEY}, current="k1", random_bytes=lambda size: bytes([next(numbers)] * size))

    first, second = (seals.seal(PLAINTEXT, associated_data=PLACE) for _ in range(2))

    assert first[:16] == b"\x01\x02k1" + b"\x01" * 12
    assert second[:16] == b"\x01\x02k1" + b"\x02" * 12
    assert len(first) == 16 + len(PLAINTEXT) + 16
    assert PLAINTEXT not in first
    assert first[16:] != second[16:]


def test_a_sealed_value_opens_nowhere_else() -> None:
    seals = sealer(old=OLD_KEY)
    sealed = seals.seal(PLAINTEXT, associated_data=PLACE)

    with pytest.raises(UnsealError, match="another place"):
        seals.unseal(sealed, associated_data="webhooks/wh_2/secrets")


def test_every_cut_of_a_sealed_value_is_refused() -> None:
    seals = sealer(old=OLD_KEY)
    sealed = seals.seal(PLAINTEXT, associated_data=PLACE)

    for length in range(len(sealed)):
        with pytest.raises(UnsealError):
            seals.unseal(sealed[:length], associated_data=PLACE)


def test_a_new_key_seals_while_old_rows_still_open() -> None:
    sealed_before = sealer(old=OLD_KEY).seal(PLAINTEXT, associated_data=PLACE)
    rotated = sealer(new=NEW_KEY, old=OLD_KEY)
    sealed_after = rotated.seal(PLAINTEXT, associated_data=PLACE)

    assert rotated.unseal(sealed_before, associated_data=PLACE) == PLAINTEXT
    assert sealer(new=NEW_KEY).unseal(sealed_after, associated_data=PLACE) == PLAINTEXT
    with pytest.raises(UnsealError, match="not in the key ring"):
        sealer(new=NEW_KEY).unseal(sealed_before, associated_data=PLACE)


def test_another_key_under_the_same_id_opens_nothing() -> None:
    sealed = sealer(k=OLD_KEY).seal(PLAINTEXT, associated_data=PLACE)

    with pytest.raises(UnsealError):
        sealer(k=NEW_KEY).unseal(sealed, associated_data=PLACE)


def test_the_same_key_under_another_id_opens_nothing() -> None:
    seals = sealer(k1=OLD_KEY, k2=OLD_KEY)
    sealed = seals.seal(PLAINTEXT, associated_data=PLACE)

    with pytest.raises(UnsealError):
        seals.unseal(sealed.replace(b"k1", b"k2", 1), associated_data=PLACE)


def test_the_first_key_of_a_key_ring_seals() -> None:
    newest, oldest = generate_key_ring_entry(NEW_KEY), generate_key_ring_entry(OLD_KEY)
    ring = parse_key_ring(f"{newest}, {oldest.rstrip('=')}")

    assert list(ring.keys.values()) == [NEW_KEY, OLD_KEY]
    assert ring.current_id == newest.split(":")[0]
    assert "bytes" not in repr(ring)
    assert str(NEW_KEY) not in repr(ring)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Entry 1 of the key ring is not of the form id:base64"),
        ("justakey", "Entry 1 of the key ring is not of the form id:base64"),
        (f"{generate_key_ring_entry(OLD_KEY)},", "Entry 2 of the key ring is not of the form id:base64"),
        ("k1:c2hvcnQ=", "Entry 1 of the key ring: a key is 32 bytes; this one has 5"),
        ("k1:not base64", "Entry 1 of the key ring: its key is not standard base64. Commas separate the entries."),
        (
            f"{generate_key_ring_entry(NEW_KEY)}\n{generate_key_ring_entry(OLD_KEY)}",
            "Entry 1 of the key ring: its key is not standard base64. Commas separate the entries.",
        ),
        (generate_key_ring_entry(OLD_KEY).replace(":", "!:"), "Entry 1 of the key ring: a key id is 1 to 32 letters"),
        (
            f"{generate_key_ring_entry(OLD_KEY)},{generate_key_ring_entry(OLD_KEY)}",
            "Entry 2 of the key ring repeats the id",
        ),
    ],
)
def test_an_invalid_key_ring_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidKeyRing, match="key ring") as refused:
        parse_key_ring(text)

    assert str(refused.value).startswith(reason)
    assert "b29v" not in str(refused.value)


def test_a_sealer_refuses_keys_that_it_could_not_use() -> None:
    with pytest.raises(InvalidKeyRing, match="32 bytes"):
        sealer(short=b"short")
    with pytest.raises(InvalidKeyRing, match="current key"):
        AesGcmSealer({"old": OLD_KEY}, current="new", random_bytes=os.urandom)
