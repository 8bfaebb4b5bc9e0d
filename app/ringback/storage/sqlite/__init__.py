"""The SQLite store: one file, one writer, and commits that are shared.

    write(work) ─▶ waiting ─┐                  event loop                    │ commit thread
    write(work) ─▶ waiting ─┼─▶ BEGIN, then each unit in its own SAVEPOINT ──┼─▶ COMMIT (fsync)
    write(work) ─▶ waiting ─┘                                                │
         what arrives meanwhile is the next group ◀── values, errors, rings ─┘

    read(work) ──▶ BEGIN, the unit, ROLLBACK, on a second connection that cannot write; sees the last commit, never waits
    scan(principal, work) ──▶ the same on one of a few read-only connections, each in a thread of its own

Statements of write and read take microseconds and run on the event loop's own thread. Those of lists visit a bounded number of
rows and may take milliseconds, and so does the fsync of a commit: these run on threads of their own. While one group is made
durable the next one gathers: groups grow with the load, and no timer is needed.

A unit of work is driven to its end without the event loop. That is what makes it a transaction: nothing runs in between, and
one that waits for anything but its transaction is undone and gets a RuntimeError.

Who fails alone and who fails together: an error inside a unit undoes that unit and is its caller's; a BEGIN or COMMIT that
fails (locked by another process, full disk, I/O error) undoes the group, and every caller of it gets `StoreUnavailable`.

    store        open, close, write, read, scan     migrate   numbered migrations, applied at the start
    group_commit the left side of the drawing       lock      one serving process for one file, and its count of commits
    transaction  what a unit of work sees           database  connections, errors
    read_pool    the connections of scan            commits   COMMIT, its count, and whether any are missing at a start
    scans        pages of bounded work              trust     stops all work when the file is damaged, gone or replaced
    matching     finds the webhooks of an event     examination  damage and missing commits, for `ringback doctor`
    write_probe  a write as large as a call's       scheduling_time  how far it has come, for the next start

    calls … keys  rows to values and back, a file for each noun, with its statements in sql/; among them catch_ups (webhooks
                  that are behind), event_places (heads of logs), sealing_keys, call_deliveries
"""
