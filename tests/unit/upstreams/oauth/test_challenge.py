"""What the refusal of a request says."""

import pytest

from ringback.upstreams.oauth.challenge import Refusal, parse_refusal


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ('Bearer scope="a b", error="e"', Refusal(status_code=401, is_bearer=True, scope="a b", error="e")),
        ("bearer SCOPE=a", Refusal(status_code=401, is_bearer=True, scope="a")),
        ("Bearer", Refusal(status_code=401, is_bearer=True)),
        ('Basic a="x", Bearer resource_metadata="u"', Refusal(status_code=401, is_bearer=True, resource_metadata="u")),
        ('Bearer error_description="scope=\\"evil\\"", scope="good"', Refusal(status_code=401, is_bearer=True, scope="good")),
        ('Bearer scope="first", scope="second"', Refusal(status_code=401, is_bearer=True, scope="first")),
        ('Basic realm="Bearer scope=x"', Refusal(status_code=401)),
        ("Digest nonce=1", Refusal(status_code=401)),
        ("Bearer " + "x" * 9000, Refusal(status_code=401)),
        ("", Refusal(status_code=401)),
    ],
    ids=["usual", "lower case", "bare", "after Basic", "quoted", "twice", "within Basic", "another scheme", "huge", "empty"],
)  # fmt: skip
def test_a_challenge_is_read(header: str, expected: Refusal) -> None:
    assert parse_refusal(401, [header]) == expected


@pytest.mark.parametrize("hostile", ['Bearer a="' + "\\" * 8000, "Bearer " + "a=," * 2000, "Bearer " + " " * 8000])
def test_a_hostile_challenge_is_read_in_linear_time(hostile: str) -> None:
    assert parse_refusal(401, [hostile]).scope is None


def test_only_a_403_with_its_error_asks_for_more_scopes() -> None:
    challenge = ['Bearer error="insufficient_scope", scope="write"']

    assert parse_refusal(403, challenge).requires_scope
    assert not parse_refusal(401, challenge).requires_scope
    assert not parse_refusal(403, ["Bearer"]).requires_scope
