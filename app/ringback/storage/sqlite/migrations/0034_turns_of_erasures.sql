-- oldest code: 33
-- Principals take turns with the erasures that can go on, and with those that wait for a call.
CREATE INDEX erasures_in_turns ON erasures (is_waiting, principal, worked_at) WHERE finished_at IS NULL;
DROP INDEX erasures_open;
