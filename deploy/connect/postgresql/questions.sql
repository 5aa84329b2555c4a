-- Questions that people ask of their chat, for a dashboard or psql. Each covers the last 7 days; change the interval here:
-- `set parley.since = '30 days'`.

set parley.since = '7 days';

create or replace view parley.recent as
select *, first_token_at - requested_at as first_token, finished_at - requested_at as duration
from parley.turns
where created_at >= now() - current_setting('parley.since')::interval;

-- How much is it used, and by how many users?
select date_trunc('day', created_at) as day, count(*) as turns, count(distinct user_id) as users,
    sum(prompt_tokens) as prompt_tokens, sum(completion_tokens) as completion_tokens
from parley.recent group by 1 order by 1;

-- How long do users wait, by model?
select model_version, count(*) as turns,
    percentile_cont(0.5) within group (order by first_token) as first_token_p50,
    percentile_cont(0.95) within group (order by first_token) as first_token_p95,
    percentile_cont(0.95) within group (order by duration) as duration_p95
from parley.recent group by 1 order by 2 desc;

-- At which hours of the week is it busy?
select extract(isodow from created_at) as weekday, extract(hour from created_at) as hour, count(*) as turns
from parley.recent group by 1, 2 order by 1, 2;

-- How do answers end, by model?
select model_version, finish_reason, count(*) as turns,
    round(100.0 * count(*) / sum(count(*)) over (partition by model_version), 1) as percent
from parley.recent group by 1, 2 order by 1, 3 desc;

-- What does it cost, by tenant and model?
select tenant, model, sum(requests) as requests, sum(prompt_tokens + completion_tokens) as tokens, sum(cost) as cost
from parley.usage where window_start >= now() - current_setting('parley.since')::interval
group by 1, 2 order by 5 desc;

-- How do the arms of an experiment compare?
select experiment, arm, count(*) as turns, count(distinct user_id) as users,
    round(avg(completion_tokens), 1) as tokens,
    percentile_cont(0.5) within group (order by first_token) as first_token_p50,
    round(100.0 * count(*) filter (where finish_reason not in ('stop', 'tool_calls')) / count(*), 1) as percent_incomplete
from parley.recent where experiment is not null group by 1, 2 order by 1, 2;

-- What does the guard find?
select category, count(*) as turns, count(*) filter (where finish_reason = 'filtered') as ended,
    count(distinct user_id) as users
from parley.recent, unnest(guard) as category group by 1 order by 2 desc;

-- Which tools do models call, and how often?
select call ->> 'name' as tool, count(*) as calls, count(distinct request_id) as turns
from parley.recent, jsonb_array_elements(tool_calls) as call group by 1 order by 2 desc;

-- How many turns does a conversation have?
select turns, count(*) as conversations
from (select count(*) as turns from parley.recent group by user_id, conversation_id) as lengths group by 1 order by 1;

-- How many users come back on another day?
select count(*) as users, count(*) filter (where days > 1) as came_back
from (select count(distinct date_trunc('day', created_at)) as days from parley.recent group by user_id) as visits;

-- Which conversations ended without a whole answer? Start reading here.
select distinct on (user_id, conversation_id) user_id, conversation_id, created_at, finish_reason, prompt
from parley.recent where finish_reason <> 'stop' order by user_id, conversation_id, created_at desc limit 100;

-- What was refused, and why?
select action, outcome, tenant, sum(count) as times
from parley.audit
where action in ('refusal', 'denied') or (action = 'request' and outcome not in ('stop', 'length', 'tool_calls'))
    and at >= now() - current_setting('parley.since')::interval
group by 1, 2, 3 order by 4 desc;

-- Which records could not be read? Nothing else shows them.
select topic, reason, count(*) as records, max(rejected_at) as last from parley.rejected group by 1, 2 order by 3 desc;
