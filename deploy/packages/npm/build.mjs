// What is published: the compiled sources, the reader of the repository, and the vectors that it is tested with.

import { execFileSync } from 'node:child_process'
import { copyFileSync, rmSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const at = (path) => fileURLToPath(new URL(path, import.meta.url))
rmSync(at('dist'), { recursive: true, force: true })
execFileSync(process.execPath, [at('node_modules/typescript/bin/tsc'), '-p', at('tsconfig.json')], { stdio: 'inherit' })
copyFileSync(at('../../../app/reader/reader.mjs'), at('dist/reader.js'))
copyFileSync(at('src/reader.d.ts'), at('dist/reader.d.ts'))
copyFileSync(at('../conformance/vectors.json'), at('dist/vectors.json'))
