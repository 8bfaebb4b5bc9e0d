"""Soak runs: what hostile neighbours do to one quiet principal of the same service.

    scripts/soak ─▶ __main__ ─▶ run ─┬─▶ history      10⁵ calls of one principal, 10,000 held deliveries of another
                                     ├─▶ service      Ringback in a process of its own, with name servers that never answer
                                     ├─▶ quiet        the measured principal: calls, callbacks, /healthz, memory of the service
                                     ├─▶ crowd        the neighbours, in a process of their own
                                     │     ├─▶ connections   slow headers, headers without end, answers that nobody reads
                                     │     ├─▶ callers       hung names, held deliveries, filters, cursors, 1,000 webhooks
                                     │     └─▶ upstream      garbage and floods, over stdio
                                     └─▶ verdict      what was measured, judged

The quiet principal calls alone first, then beside its neighbours, at the same even pace. What is lost, refused or stuck is
counted; latencies are compared between the two phases of one run and never with a number of another machine.
"""
