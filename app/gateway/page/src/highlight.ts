/** Code with its strings, numbers, comments and commonest words set apart; the same few rules for all languages. */

import { element } from './dom'

const RULES =
  /(?<comment>\/\/[^\n]*|\/\*[\s\S]{0,1000}?\*\/|(?<=^|\s)#[^\n]*|--\s[^\n]*)|(?<string>"(?:\\.|[^"\\\n]){0,1000}"|'(?:\\.|[^'\\\n]){0,1000}'|`(?:\\.|[^`\\]){0,1000}`)|(?<number>\b\d[\w.]*\b)|(?<word>\b(?:and|as|async|await|break|case|catch|class|const|continue|def|do|elif|else|enum|export|except|extends|false|finally|fn|for|from|func|function|if|impl|import|in|interface|is|let|match|mut|new|nil|None|not|null|or|package|pass|pub|raise|return|self|static|struct|switch|this|throw|true|True|False|try|type|use|var|void|while|with|yield|SELECT|FROM|WHERE|INSERT|UPDATE|DELETE|JOIN|GROUP|ORDER|BY)\b)/gm

/** Longer code stays plain: the end of a comment or string is searched for at each place where one may begin. */
const LONGEST = 20_000

export function highlighted(code: string): (Node | string)[] {
  if (code.length > LONGEST) return [code]
  const made: (Node | string)[] = []
  let at = 0
  for (const match of code.matchAll(RULES)) {
    const kind = Object.entries(match.groups ?? {}).find(([, text]) => text !== undefined)?.[0]
    made.push(code.slice(at, match.index), element('span', { className: kind ?? '' }, match[0]))
    at = match.index + match[0].length
  }
  return [...made, code.slice(at)]
}
