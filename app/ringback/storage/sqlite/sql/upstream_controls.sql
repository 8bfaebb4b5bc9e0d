-- What operators decided about upstreams. An upstream without a row takes calls.

-- name: all
SELECT {upstream_control in upstream_controls} FROM upstream_controls;

-- name: save
INSERT INTO upstream_controls {new upstream_control}
ON CONFLICT (upstream) DO UPDATE SET intake = excluded.intake, changed_at = excluded.changed_at;

-- name: remove
DELETE FROM upstream_controls WHERE upstream = :upstream;
