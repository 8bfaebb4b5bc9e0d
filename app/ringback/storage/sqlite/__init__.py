"""The SQLite store: one file, one writer, and commits that are shared.

    write(work) ─▶ waiting ─┐                  event loop                    │ commit thread
    write(work) ─▶ waiting ─┼─▶ BEGIN, then each unit in its own SAVEPOINT ──┼─▶ COMMIT (fsync)
    write(work) ─▶ waiting ─┘                                                │
         what arrives meanwhile is the next group ◀── values, errors, rings ─┘

    read(work) ──▶ BEGIN, the unit, ROLLBACK, on a second connection that cannot write; sees the last commit, never waits

Statements take microseconds and run on the event loop's own thread; the fsync of a commit takes milliseconds and runs on a
thread of its own. While one group is made durable the next one gathers: groups grow with the load, and no timer is needed.

A unit of work is driven to its end without the event loop. That is what makes it a transaction: nothing runs in between, and
one that waits for anything but its transaction is undone and gets a RuntimeError.

Who fails alone and who fails together: an error inside a unit undoes that unit and is its caller's; a BEGIN or COMMIT that
fails (locked by another process, full disk, I/O error) undoes the group, and every caller of it gets `StoreUnavailable`.

    store        open, close, write, read           migrate   numbered migrations, applied at the start
    group_commit the left side of the drawing       lock      one serving process for one file
    transaction  what a unit of work sees           database  connections, errors
    calls … keys  rows to values and back, a file for each noun, with its statements in sql/
"""
