-- name: load
SELECT instant FROM scheduling_time WHERE id = 1;

-- Keeps the latest time of several nodes, but none that only a wrong clock can have saved.
-- name: save
INSERT INTO scheduling_time (id, instant) VALUES (1, :now)
ON CONFLICT (id) DO UPDATE SET instant = CASE
    WHEN scheduling_time.instant > :instant_max THEN excluded.instant ELSE greatest(scheduling_time.instant, excluded.instant)
END;
