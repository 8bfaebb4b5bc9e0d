-- oldest code: 20
-- Calls that ran more than once. PostgreSQL has the column, too, and `ringback copy` copies it.
ALTER TABLE calls ADD COLUMN is_rerun INTEGER GENERATED ALWAYS AS (runs > 1) VIRTUAL;
CREATE INDEX calls_rerun ON calls (principal, id) WHERE is_rerun;
CREATE INDEX calls_rerun_of_all ON calls (id) WHERE is_rerun;

-- Deliveries that were tried again: few, and their calls are found by them.
CREATE INDEX deliveries_retried ON deliveries (principal, call_id) WHERE attempts > 1;
CREATE INDEX deliveries_retried_of_all ON deliveries (call_id, attempts) WHERE attempts > 1;
