"""What every test stands on: one event loop back end, and the profile that decides how much is tried.

`default` is what CI runs; `deep` (scripts/test --deep) has the large counts that the issues name.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.register_profile(
    "deep", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
PROFILE = os.environ.get("RINGBACK_TEST_PROFILE", "default")
settings.load_profile(PROFILE)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def deep() -> bool:
    """Whether the large counts are wanted."""
    return PROFILE == "deep"
