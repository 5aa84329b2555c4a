const FIELDS = new Set(
  `agent best_of cache chat_template_kwargs continue_conversation continue_final_message conversation_id deadline_ms
  frequency_penalty from ignore_eos keep_context logit_bias logprobs max_tokens messages metadata min_p min_tokens model
  not_before parallel_tool_calls presence_penalty previous_request_id priority prompt prompt_logprobs
  prompt_token_ids raw reasoning_effort recall repetition_penalty replaces request_id response_format seed stop stop_when
  store temperature tenant tool_choice tool_mode tool_results tool_timeout_ms tools top_k top_logprobs top_p
  user_id while_busy`.split(/\s+/),
)

/** Throws a `TypeError` for a name that would have no effect. */
export function checkFields(names: string[]): void {
  for (const name of names) {
    if (FIELDS.has(name)) continue
    const near = nearest(name)
    const hint = near === undefined ? "the fields are in Parley's app/wire/README.md" : `did you mean '${near}'?`
    throw new TypeError(`ask: '${name}' is no field of a request; ${hint}`)
  }
}

/** The field that fewest changes of letters make of the name, if that is less than half of them. */
function nearest(name: string): string | undefined {
  const plain = (text: string) => text.toLowerCase().replaceAll('_', '')
  const most = name.length / 2
  const [best] = [...FIELDS]
    .map((field) => ({ field, changes: name.length > 64 ? Infinity : changesBetween(plain(name), plain(field)) }))
    .sort((one, other) => one.changes - other.changes)
  return best !== undefined && best.changes < most ? best.field : undefined
}

/** Levenshtein's distance. */
function changesBetween(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, at) => at)
  for (const [at, letter] of [...one].entries()) {
    const next = [at + 1]
    for (let to = 1; to <= other.length; to++) {
      const changed = (row[to - 1] ?? 0) + (other[to - 1] === letter ? 0 : 1)
      next.push(Math.min(changed, (row[to] ?? 0) + 1, (next[to - 1] ?? 0) + 1))
    }
    row = next
  }
  return row[other.length] ?? Infinity
}
