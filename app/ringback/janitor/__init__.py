"""The janitor recovers the work of processes that died, and removes expired rows.

    round ──▶ one read: which tasks may have work ──▶ one batch of each of them, a transaction each
          ──▶ again for the others, until none may have work ──▶ a pause, short if a batch was full ──▶ the next round

It runs beside the service from the start, and nothing waits for it: the leases of an earlier process carry another owner, so
they need not be voided before the service accepts requests. A task with much to do does not delay the others: each has one
batch in every round. A task that fails only loses its own turn, and so does one whose unit alone the store refuses.
If that took long, the task then rests.

    janitor          runs the tasks
    config           how long rows are kept, and how much is done at once
    recovery         calls and deliveries whose process died; calls beyond their deadline
    webhook_upkeep   held deliveries, expired webhooks, subscriptions that end
    hour_counter     counts what happened into hourly rows, beside the rounds
    removal          expired calls and old rows
    erasing          what is erased on request
"""
