-- Run it every hour: it deletes what `turns_now` hides already.
DELETE FROM turns WHERE (user_id, request_id) IN (
    SELECT user_id, request_id FROM turns INNER JOIN erasures USING user_id
    WHERE requested_at <= erased_at AND (isNull(erasures.conversation_id) OR erasures.conversation_id = turns.conversation_id)
);
