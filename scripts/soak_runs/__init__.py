"""Soak runs: the effect of hostile clients on one ordinary principal of the same service.

    scripts/soak ─▶ __main__ ─▶ run ─┬─▶ stored_data       10⁵ calls of one principal, 10,000 held deliveries of another
                                     ├─▶ service           Ringback in its own process, with name servers that never respond
                                     ├─▶ measured_client   the measured principal: calls, callbacks, /healthz, service memory
                                     ├─▶ hostile_clients   the hostile clients, in their own process
                                     │     ├─▶ hostile_connections   slow or endless headers, unread responses
                                     │     ├─▶ hostile_callers       hanging names, held deliveries, filters, 1,000 webhooks
                                     │     ├─▶ hostile_readers       large results that are not read
                                     │     ├─▶ upstream              malformed responses and floods, over stdio
                                     │     └─▶ http_upstream         floods on response streams, over HTTP
                                     └─▶ verdict           compares the measurements with the limits

The measured principal calls alone first, then beside the hostile clients, at the same constant rate. Lost, rejected and stuck
calls are counted. Latencies are compared between the two phases of one run, never with numbers of another machine.
"""
