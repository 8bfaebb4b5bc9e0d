"""From a change of a call to the POST that tells of it.

    whoever changes a call ──▶ record ── one transaction: call + events + deliveries ──▶ rings `DUE`, or hands over
                                 │
                                 ├ fan_out: a delivery for each webhook that hears the event; body, state, order
                                 └ body: made once, from the event, the webhook and a resume token; sealed at rest
    a runner whose call ends ──▶ ends ── the same for all calls that end at about the same time (`batcher`)

                   ┌ claims: what is due, lane by lane ┐
    dispatcher ◀───┤                                   ├── both ask lanes: slots, breakers, pace
                   └ post_commit: inserted as leased   ┘
        │
        └─▶ sender.post(target, headers, body) ──▶ settler ── one transaction for many ──▶ settlement: delivered | pending
                                                              again | dead; what that means for webhook, origin and receiver

    verifier: challenges the URLs that have to prove that they want callbacks; until then what is for them is held
    catch_up: creates the deliveries of a webhook with an old cursor, in bounded steps; catch_up_worker runs the steps
    places: a place in the event log with the mark of its event, so that a place in a lost log is recognised

What stands between an attempt and its socket:

    sender ──▶ http1_sender ──▶ http1_pool ──▶ http1_dialer ──▶ target_guard: judges each address (addresses)
                                                  │                └─▶ look_ups: cached (address_cache), shared, with
                                                  ▼                    a permit of the principal (look_up_permits)
                                 http1_connection, http1_answer            └─▶ resolver: c-ares

`record` is a library, not a service: services, the runner and the janitor call it inside their own transactions, so there is
no second queue that could fall out of step. `dispatcher` is the only one that sends. `sender` is the seam to HTTP: HTTP/1.1
of our own in production, with the guard where sockets are made; any httpx transport of a user's own otherwise.

Leases. The store's clock grants a lease of `lease_seconds`; an attempt starts at once and ends within its own deadline, which
is far shorter. So an attempt cannot outlive its lease unless the process itself stood still, and then `settle` refuses its
stale token:

    lease granted ├── attempt ≤ 10 s ──┤──── margin ────┤ lease_until: somebody else may try, with the same webhook-id

What is in memory (permits, post-commit handoffs) may be lost at any moment: everything that matters of it is in the store,
leased.
"""
