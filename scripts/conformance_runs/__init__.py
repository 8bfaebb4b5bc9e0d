"""Runs the official conformance suite against Ringback: `scripts/conformance`.

    __main__ ─┬─ suite          npm package and Node, pinned; runs a revision's scenarios and reads their checks
              ├─ verdict        which checks passed, failed, were skipped, and which may fail, each with its reason
              └─ processes      a Ringback with authentication off, before ─▶ fixture; one for each `on_disconnect`
                                                                                ├─ fixture_tools   as the suite names them
                                                                                └─ fixture_tasks   tasks, in memory

The suite expects certain tools, prompts and resources, which the fixture has. A check that fails through Ringback and passes
directly (`--direct`) is Ringback's fault.

The suite's scenarios for Events are not merged, and no published version has them (November 2026). `ringback check-server` has
the checks of servers under the same ids, and `tests/event_rules.py` lists all of them. To run them against Ringback once a
version has them: events-webhook subscribes to callbacks that do not exist, so it needs
RINGBACK_CALLBACK_ALLOWLIST=https://conformance.invalid/mcp-events; events-webhook-delivery needs a callback that is neither on
this machine's loopback nor plain http (EVENTS_WEBHOOK_CALLBACK_BASE), because it also checks that loopback is refused.

The suite has no check of a closed stream that shows the difference between `on_disconnect: keep` and `cancel`. Both are run, so
that neither depends on the other: "The server MUST treat a client disconnect as cancellation of that request" (2026-07-28,
Cancellation) is met by both for the request, and by `cancel` also for the call (`mcp_server.cancellation`).
"""
