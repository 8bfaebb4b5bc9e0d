"""Every unit of work that a plan names exists: a renamed one would never be reached."""

import re
from pathlib import Path

import pytest

import ringback
from scripts.chaos_runs.plan import CLUSTER_UNITS

SOURCES = [path.read_text(encoding="utf-8") for path in Path(ringback.__file__).parent.rglob("*.py")]


@pytest.mark.parametrize("unit", CLUSTER_UNITS)
def test_every_unit_of_work_of_a_plan_exists(unit: str) -> None:
    owner, method = unit.removesuffix(".<locals>").split(".")
    of_owner = re.compile(rf"^class {owner}\b.*?(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
    bodies = [match.group() for source in SOURCES for match in of_owner.finditer(source)]

    assert any(re.search(rf"^    async def {method}", body, re.MULTILINE) for body in bodies), unit
