-- oldest code: 6
-- What an operator looks for first among the work of all principals: calls that wait for an answer, and dead deliveries. Both are few
-- beside the others, and no part of a usual call's writes.
CREATE INDEX calls_awaiting_input_of_all ON calls (id) WHERE status = 'input_required';
-- `generation > 0` is true of every row. Only the statements of this list say so: the planner would also choose the index for dead
-- deliveries of one principal or webhook, and read those of all others.
CREATE INDEX deliveries_dead_of_all ON ended_deliveries (id) WHERE state = 'dead' AND generation > 0;
