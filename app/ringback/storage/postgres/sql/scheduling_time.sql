-- name: load
SELECT instant FROM scheduling_time WHERE id = 1;

-- name: save
INSERT INTO scheduling_time (id, instant) VALUES (1, :now)
ON CONFLICT (id) DO UPDATE SET instant = greatest(scheduling_time.instant, excluded.instant);
