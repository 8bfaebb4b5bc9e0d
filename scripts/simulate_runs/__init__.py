"""scripts/simulate: whole clusters in one process, on one virtual clock and one seeded scheduler.

    make_plan ──▶ plan: calls, webhooks, receivers, faults, actions, logins, publishers, readers
                    │
    run ────────────┼────────────────────────────────────────────────────────────────────────────
                    ▼                                                                      loop
      actors (client, operators, publishers, readers) ──▶ cluster ── node: the real services, runner, dispatcher, janitor
           (requester)       ▲         │ node_store ──▶ database   SQLite's rows in memory, shared by all nodes
      faults ── kill, freeze, …        │ sessions ────▶ upstreams  run tools, crash, stall, lie
                                       └ receivers.NodeSender ──▶ receivers
                    │
    history: what clients, upstreams and receivers saw        records: what the database holds at the end
                    └───────────────▶ checks ◀───────────────────────┘    (rules, checks_of_…; audit during the run)
                                         │ a violation
                                         ▼
                                      shrink ──▶ a smaller plan, and its story

What is real: everything of `ringback` between the services' methods and the ports of store, sessions, sender and clock. What is
simulated: the loop, the time, the network, the database's server, upstreams, receivers and clients. `mutants` puts bugs into
the real part and shows that the checks find them.

MCP clients subscribe to events, refresh in time or too late, and go on from the cursor of their last grant. Operators and
owners pause, drain and resume upstreams, cancel and redeliver in bulk, rotate secrets, erase calls, sessions and principals,
and sign in to upstreams that refuse calls until then, or again in the middle of one.

Publishers publish events with API keys that they rotate and lose; readers poll the log and follow streams of it from node to
node. Nodes lose their listener and listen again, and restart one after the other with another sealing key.

The limits: one unit of work runs at one instant, so what concurrent transactions do to one another is not simulated; the
endpoints (REST, MCP), the real sender and the real connections with upstreams are not part of it.
"""
