"""The tasks of a janitor that can have anything to do in a plan. The others would only look.

A fifth of the plans (`removes_old_rows`; fewer of the tiny ones) runs all tasks, so that one that removes too much is found.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ringback.janitor.config import MaintenanceTask
from ringback.janitor.removal import RemovalTasks
from scripts.simulate_runs.plan import ERASURES, Plan


def choose_tasks(tasks: Sequence[MaintenanceTask], plan: Plan) -> list[MaintenanceTask]:
    return [task for task in tasks if plan.removes_old_rows or _has_work(task, plan)]


def _has_work(task: MaintenanceTask, plan: Plan) -> bool:
    name = getattr(task, "__name__", "")
    if name in NEEDS:
        return NEEDS[name](plan)
    return not isinstance(getattr(task, "__self__", None), RemovalTasks)


def _has_erasures(plan: Plan) -> bool:
    return any(action.kind in ERASURES for action in plan.actions)


def _has_logins(plan: Plan) -> bool:
    return bool(plan.logins)


def _has_subscriptions(plan: Plan) -> bool:
    return any(webhook.refresh_seconds is not None for webhook in plan.webhooks)


def _has_deliveries(plan: Plan) -> bool:
    return bool(plan.webhooks) or any(call.callback is not None for call in plan.calls)


def _may_hold_deliveries(plan: Plan) -> bool:
    """Deliveries are held while their webhook is not verified, or an operator or its owner pauses it."""
    return (
        any(webhook.is_verified for webhook in plan.webhooks)
        or any(call.callback for call in plan.calls)
        or bool(plan.actions)
    )


def _never(_plan: Plan) -> bool:
    """These tasks find nothing in any plan.

    Webhooks are suspended after days of failures. The database has several nodes, so no process recovers what others left when
    it starts. The database's clock is right, so no delivery is due too late, and no time has to be saved.
    """
    return False


NEEDS: Final[Mapping[str, Callable[[Plan], bool]]] = {
    "_recover_calls_of_others": _never,
    "_release_deliveries_of_others": _never,
    "_release_expired_leases": _has_deliveries,
    "_pull_back_deliveries": _never,
    "_save_scheduling_time": _never,
    "_erase": _has_erasures,
    "check_next_login": _has_logins,
    "continue_resumption": _has_logins,
    "_give_up_held_deliveries": _may_hold_deliveries,
    "_release_held_deliveries": _may_hold_deliveries,
    "_remove_expired_webhooks": _has_subscriptions,
    "_terminate_subscriptions": _has_subscriptions,
    "_terminate_abandoned_subscriptions": _never,
    "_probe_suspended_webhooks": _never,
}
"""What a plan must contain for a task to have work. Other removals never have any, and all other tasks may."""
