"""Whose calls a runner may get, by the settings of authentication."""

from typing import Any

import pytest

from ringback.bootstrap.workers import find_possible_callers
from ringback.runner.leasing import PossibleCallers
from ringback.settings import Settings

pytestmark = pytest.mark.requirement("R11")

ISSUER = {"oidc_issuer": "https://issuer.example"}


@pytest.mark.parametrize(
    ("settings", "callers"),
    [
        ({}, PossibleCallers.KEY_OWNERS),
        (ISSUER, PossibleCallers.ANYBODY),
        ({"auth": "off"}, PossibleCallers.ONE),
        ({"auth": "off", **ISSUER}, PossibleCallers.ONE),
    ],
)
def test_an_identity_provider_may_send_anybody_and_keys_only_their_owners(
    settings: dict[str, Any], callers: PossibleCallers
) -> None:
    assert find_possible_callers(Settings.model_validate({"host": "127.0.0.1", **settings})) is callers
