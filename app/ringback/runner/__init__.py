"""The runner takes a queued call to its end.

    runner        leases queued calls, extends the leases, and runs one execution for each leased call
    leasing       leases calls within transactions, also within the one that starts a call (`post_commit`)
    execution     one leased call until it ends, is parked or is handed back; deadline, cancel request, shutdown signal
    permits       how many calls each upstream runs at once, and calls that wait without a permit
    key_owner_watch  watches whether several principals can start calls, so that one leaves permits to others
    held_execution  an execution that waits for the commit of its call
    leased_dispatch_record  records that a tools/call waits for its token or was refused for it, and that it is sent then
    leased_call   every write to the call under its lease (`drivers.driver.CallContext`)
    cancel_request  the cancel request of a call to its upstream: delivered once, sent again until then
    lease_end     the end of the lease: the call ends, is parked, or is queued again
    lease_writer  repeats these writes while the store is unavailable
    drivers       carry one call over a session (`upstreams` opens it)
    lost_leases   recovers calls that are leased to this process although it never began to run them
    run_spans     the span of a run
    throttled_writer  writes the newest progress of a call at most once an interval
    task_lookup   finds a task that another client started, for adoption

Who may run a call, and who may write it:

    holder      requests the lease ──────────────── trusted ────────────────▶│── margin ──│
                     │    heartbeat, heartbeat, …: each extends the lease    │ stops its work, writes nothing
    store            └─ grants owner, token, until ──────────────────────────────────▶ until ── grace ──▶ janitor: recovery
    every write      in one transaction: is the call still running, and does the row carry this token?

The store's clock grants a lease and ends it. The holder counts from the moment before its request, by a monotonic clock, and
stops a margin earlier. So the earlier holder has stopped before the lease is granted again, unless its process was suspended.
The token covers that case: it is new with each lease, and a write with an old token changes nothing. The request of a suspended
holder may still run upstream, but two processes never decide the end of one call.

How a failure becomes an outcome (`protocol.errors`, `drivers.completions`):

    no connection, or the session is unknown        RequestNotSent            once more in the next session, then `rejected`
    credentials missing or refused                  RequestNotSent            the same
    a login of a user is required                   LoginRequired             parked until the login (`login_waits`)
    the login's tokens have a key of other nodes    TokensUnreadable          left to the other nodes
    too many requests (429)                         none                      sent again after a pause (`throttled_calls`)
    bytes were sent, no response came               ResponseLost              resumed or polled by the handle, else `unknown`
    … and the session has ended                     SessionGone               `unknown`
    a response that is not valid MCP                InvalidUpstreamResponse   `upstream_error`
    … an error page of a proxy (502, 503, 504)      UpstreamUnavailable       `unknown`; a task is polled on
    a JSON-RPC error                                UpstreamError             `upstream_error`, with the upstream's error object
"""
