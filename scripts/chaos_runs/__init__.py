"""Chaos runs: a whole Ringback of real processes, killed and frozen by a seeded plan, and a checker of its promises.

    scripts/chaos ─▶ __main__ ─▶ run ─┬─▶ plan          turns a seed into calls, service runs and faults
                                      ├─▶ processes     starts each process, and restarts it when it has died
                                      │     service         Ringback, which kills or stops itself at a unit of work
                                      │     upstreams       HTTP servers of both protocol eras; stdio_upstream is the third
                                      │     receiver        stores each callback before it responds
                                      ├─▶ database      SQLite, or PostgreSQL behind a proxy for each node
                                      ├─▶ agent         starts, reads, cancels and answers calls, and repeats its requests
                                      └─▶ observations ─▶ checker    everything observed ─▶ violations

Upstreams and receiver write each tool start and each callback to a file (`journal`) and sync it before they respond, so the
checker sees everything that happened, even if the process was killed afterwards. The seed determines the calls, their times,
and the step or moment at which each process dies. The interleaving of the processes differs from run to run.
"""
