"""Which demands become followings of an upstream, when there are more than it may have."""

from ringback.domain.event_types import EventDemand
from ringback.domain.principal import Principal
from ringback.upstreams.events.event_recorder import FOLLOWINGS_PER_UPSTREAM_MAX, select_followed
from tests.support.clock import START


def make_demand(principal: str, name: str, number: int = 0) -> EventDemand:
    arguments = {"number": number} if number else {}
    return EventDemand(
        principal=Principal(principal), event_name=name, topic=str(number), arguments=arguments, polled_until=START
    )


def test_equal_demands_of_several_principals_are_one_following() -> None:
    (followed,) = select_followed([make_demand(name, "github/pr.opened") for name in ("alice", "bob")])

    assert (followed.upstream, followed.own_name, followed.canonical_arguments) == ("github", "pr.opened", "{}")


def test_a_principal_with_many_demands_leaves_room_for_the_others() -> None:
    many = [make_demand("alice", "github/pr.opened", number) for number in range(1, 1000)]

    selected = select_followed([*many, make_demand("zoe", "github/issue.closed")])

    assert len(selected) == FOLLOWINGS_PER_UPSTREAM_MAX
    assert "issue.closed" in {each.own_name for each in selected}


def test_each_upstream_has_its_own_limit() -> None:
    many = [make_demand("alice", "github/pr.opened", number) for number in range(1, 1000)]

    selected = select_followed([*many, make_demand("alice", "git/pushed")])

    assert len([each for each in selected if each.upstream == "git"]) == 1
