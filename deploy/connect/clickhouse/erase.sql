-- Run it every hour: it deletes what `turns_now` hides already.
DELETE FROM turns WHERE (user_id, request_id) IN (
    SELECT turns.user_id, turns.request_id FROM turns
    INNER JOIN (SELECT user_id, max(erased_at) AS erased_until FROM erasures GROUP BY user_id) AS marks USING user_id
    WHERE turns.requested_at <= erased_until
);
