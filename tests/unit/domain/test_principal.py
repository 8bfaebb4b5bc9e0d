from dataclasses import replace

import pytest

from ringback.domain.errors import Forbidden
from ringback.domain.ids import KeyId
from ringback.domain.principal import ALL_SCOPES, DEFAULT_SCOPES, ApiKey, Caller, Scope
from tests.support.clock import START
from tests.support.examples import ALICE


def caller(*scopes: Scope, upstreams: frozenset[str] | None = None) -> Caller:
    return Caller(principal=ALICE, scopes=frozenset(scopes), upstreams=upstreams)


@pytest.mark.requirement("R25")
@pytest.mark.parametrize("scope", Scope)
def test_a_caller_may_do_what_it_holds_and_nothing_else(scope: Scope) -> None:
    caller(scope).require_scope(scope)
    option = "" if scope in DEFAULT_SCOPES else f" --scope {scope}"
    for other in ALL_SCOPES - {scope, Scope.ADMIN}:
        with pytest.raises(Forbidden, match=f"lacks the scope '{scope}'.* create PRINCIPAL{option}\\. "):
            caller(other).require_scope(scope)


@pytest.mark.parametrize("scope", Scope)
def test_an_admin_may_do_everything(scope: Scope) -> None:
    caller(Scope.ADMIN).require_scope(scope)


def test_admin_and_adopter_scopes_are_granted_explicitly_only() -> None:
    assert DEFAULT_SCOPES & {Scope.ADMIN, Scope.ADOPT} == set()


@pytest.mark.requirement("R25")
def test_a_caller_sees_the_upstreams_it_was_given() -> None:
    assert caller().may_use_upstream("git")
    assert caller(upstreams=frozenset({"git"})).may_use_upstream("git")
    assert not caller(upstreams=frozenset({"git"})).may_use_upstream("time")
    assert not caller(upstreams=frozenset()).may_use_upstream("git")


def test_a_key_speaks_for_its_principal_with_what_it_allows() -> None:
    key = ApiKey(
        id=KeyId("key_1"),
        principal=ALICE,
        name="laptop",
        hash="0" * 64,
        prefix="rbk_abcd",
        scopes=frozenset({Scope.READ}),
        upstreams=frozenset({"git"}),
        created_at=START,
    )
    assert key.to_caller() == replace(caller(Scope.READ, upstreams=frozenset({"git"})), key_id=key.id)
