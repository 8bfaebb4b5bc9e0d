"""Webhook secrets and API keys as texts."""

import base64

import pytest

from ringback.signing.secrets import (
    API_KEY_RANDOM_BYTES,
    InvalidSecret,
    generate_api_key,
    generate_secret,
    hash_api_key,
    is_well_formed_api_key,
    parse_secret,
)

KEY = generate_api_key(bytes(range(API_KEY_RANDOM_BYTES)))


def secret_of(size: int) -> str:
    return "whsec_" + base64.b64encode(b"k" * size).decode()


@pytest.mark.parametrize("size", [24, 25, 26, 32, 63, 64])
def test_a_secret_may_be_padded_or_not(size: int) -> None:
    assert parse_secret(secret_of(size)) == parse_secret(secret_of(size).rstrip("=")) == b"k" * size


@pytest.mark.parametrize("size", [0, 1, 23, 65, 66, 10_000])
def test_a_secret_outside_24_to_64_bytes_is_refused(size: int) -> None:
    with pytest.raises(InvalidSecret, match="24 to 64"):
        parse_secret(secret_of(size))


@pytest.mark.parametrize(
    "text", ["", "whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "WHSEC_"]
)
def test_a_secret_without_its_prefix_gets_an_error_that_names_it(text: str) -> None:
    with pytest.raises(InvalidSecret, match="begins with whsec_"):
        parse_secret(text)


@pytest.mark.parametrize("odd", ["-", "_", " ", "\n", "=", "é", "\ud800"])
def test_a_secret_in_another_alphabet_is_refused_and_not_repeated(odd: str) -> None:
    text = f"whsec_MfKQ9r8GKYqr{odd}TwjUPD8ILPZIo2LaLaSw"

    with pytest.raises(InvalidSecret, match="not standard base64") as refused:
        parse_secret(text)

    assert "MfKQ" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_generated_secret_is_a_secret() -> None:
    assert parse_secret(generate_secret(b"r" * 32)) == b"r" * 32
    with pytest.raises(ValueError, match="32 random bytes"):
        generate_secret(b"r" * 31)


@pytest.mark.parametrize("random", [bytes(24), b"\xff" * 24, bytes(range(24))])
def test_an_api_key_has_a_prefix_and_a_constant_length(random: bytes) -> None:
    key = generate_api_key(random)

    assert is_well_formed_api_key(key)
    assert len(key) == 43
    assert key.removeprefix("rbk_").isalnum()


def test_an_api_key_takes_exactly_its_random_bytes() -> None:
    with pytest.raises(ValueError, match="24 random bytes"):
        generate_api_key(b"too few")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rbk_",
        KEY[:-1],
        KEY + "0",
        KEY.upper(),
        "xyz_" + KEY[4:],
        "rbk_" + "é" * 39,
        "rbk_" + "-" * 39,
        "rbk_" + "0" * 39,
    ],
)
def test_text_that_is_no_api_key_is_not_parsed_as_one(text: str) -> None:
    assert not is_well_formed_api_key(text)


def test_a_single_mistyped_character_is_noticed_anywhere_in_an_api_key() -> None:
    typos = [KEY[:place] + ("0" if KEY[place] != "0" else "1") + KEY[place + 1 :] for place in range(len(KEY))]

    assert not any(is_well_formed_api_key(typo) for typo in typos)


def test_the_hash_of_an_api_key_is_sha_256_in_hex() -> None:
    assert hash_api_key("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
