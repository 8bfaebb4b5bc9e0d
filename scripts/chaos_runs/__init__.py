"""Chaos: a whole Ringback of real processes, killed and frozen by a plan, and a checker that believes nobody.

    scripts/chaos ─▶ __main__ ─▶ run ─┬─▶ plan          a seed becomes calls, lives and blows; the same seed, the same plan
                                      ├─▶ actors        processes that are started again whenever they have died
                                      │     service         Ringback, which kills or stops itself at a unit of work
                                      │     upstreams       HTTP servers of both protocol eras; stdio_upstream is the third
                                      │     receiver        takes callbacks; durable before it answers
                                      ├─▶ agent         starts, reads, cancels and answers calls, and repeats its requests
                                      └─▶ history ─▶ checker    what everybody saw ─▶ what must never happen

Each tool start and each callback is a line in a file (`ledger`), written through to the disk before anybody is answered; so
what is checked is what really happened, whoever was killed afterwards. What a seed decides is the plan: which calls, when, and
which process dies at which step or moment. How the processes interleave is the machine's, and differs from run to run.
"""
