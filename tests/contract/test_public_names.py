"""The public libraries export exactly the names in `__all__`."""

from types import ModuleType

import pytest

import ringback.agents
import ringback.client
import ringback.client.durable
import ringback.extension
import ringback.receiver

PUBLIC = [ringback.agents, ringback.client, ringback.client.durable, ringback.extension, ringback.receiver]


@pytest.mark.parametrize("library", PUBLIC, ids=lambda library: library.__name__)
def test_every_public_name_is_exported_and_no_other(library: ModuleType) -> None:
    lazy = {name for name in library.__all__ if name not in vars(library) and hasattr(library, name)}
    present = lazy | {
        name for name, value in vars(library).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert sorted(library.__all__) == sorted(present)


@pytest.mark.parametrize("library", PUBLIC, ids=lambda library: library.__name__)
def test_exported_names_are_sorted(library: ModuleType) -> None:
    assert list(library.__all__) == sorted(library.__all__, key=_order)


def _order(name: str) -> tuple[bool, bool, str]:
    """Constants, then classes, then functions: the order that ruff's RUF022 keeps."""
    return not name.isupper(), not name[:1].isupper(), name
