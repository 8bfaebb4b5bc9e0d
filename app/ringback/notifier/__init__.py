"""The notifier: from the change of a call to the POST at its receivers.

The way of one end. Each step calls the next; only values come back (`LeasedCompletion` in, the finished `Call` out):

    runner.leased_call            the upstream's result is a CallCompletion
      │ LeasedCompletion
    completion_batcher            all ends that are submitted while the store is busy share one transaction
      │
    recorder.finish_leased_calls  writes calls, results and events            ┐
      │ EventContext                                                          │ one
    fan_out                       inserts a delivery for each matching        │ transaction
      │                           webhook; payload builds the body            │
      │ DeliveryLease             a free permit: inserted as leased,          │
    post_commit                   otherwise as pending                        ┘
      │ after the commit
    dispatcher                    one attempt; leasing leases pending deliveries when they are due
      │
    http.sender                   one signed POST; see the drawing in `notifier.http`
      │ FinishedAttempt
    attempts.AttemptRecorder      one transaction for many attempts: deliveries, attempts, webhooks, origin breakers
      │
    concurrency_limiter           releases the permit (`permits`); webhooks that wait for one are leased next

`recorder` is a library, not a worker: services, the runner and the janitor call it inside their own transactions, so there is
no second queue that could diverge from the database. Other events (progress, input requests, webhooks, upstreams) enter at
`recorder` and go the same way. `call_ends` has ends of calls as values. `batcher` is the mechanism under `completion_batcher`
and the recording of attempts.

Where each rule is:

    when to retry, when to give up            domain.retry (schedules), domain.delivery.decide_retry
    when a webhook is suspended               domain.webhook_health; a subscription also by domain.failure_rate
    how long a suspended window stops         domain.delivery.suspended_window
    which webhook-id a message has            payload.choose_message_id
    what a trace shows of an attempt          attempt_spans
    when an origin is paused                  domain.circuit_breaker
    how many attempts at once, which rate     concurrency_limiter, with domain.rate_limiter
    how a backlog follows an outage           backlog_limiter, with origin_rates
    what an attempt in flight holds           permits
    which lease a new delivery is given       handoff_leases
    which breakers this process knows         known_breakers
    which events a webhook gets               domain.webhook.matches_event
    which webhooks get them a moment later    deferred_receivers
    which URLs are allowed                    http.target (URLs), http.guard (addresses), http.addresses (tables)
    what happens to what cannot be sent       unsendable_deliveries, in units of their own (follow_ups)
    which URLs are proven                     verification; challenge_sender sends a challenge, the verifier those that are due
    how many DNS lookups at once              http.caching_resolver
    the bytes and headers of a callback       payload
    which ids a line about a delivery has     delivery_facts

Beside this way: `catch_up` delivers past events to a webhook with an old cursor, `requested_deliveries` inserts tests and
replays, `log_positions` and `resume_tokens` serve cursors and tokens, `lost_events` reports what an upstream has lost,
`configured_hosts` resolves the operator's own hosts, and `attempt_requests` notices requests for attempts at webhooks that wait
for a permit.

Leases. The store's clock grants a lease of `lease_seconds`. An attempt starts at once and ends within its own, far shorter,
deadline. So an attempt cannot outlive its lease unless the process itself was suspended; then the recorder refuses its stale
token:

    lease granted ├── attempt ≤ 10 s ──┤──── margin ────┤ lease_until: another process may send it, under the same webhook-id

Permits and handoffs are in memory only and may be lost at any time: the store has all deliveries, with their leases.
"""
