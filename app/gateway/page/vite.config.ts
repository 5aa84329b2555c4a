import { defineConfig } from 'vite'

export default defineConfig({
  build: { outDir: '../static', emptyOutDir: true, target: 'es2022', assetsInlineLimit: 0, rolldownOptions: { input: ['index.html', 'approvals.html'] } },
  // `npm run dev` beside a gateway of its own.
  server: { fs: { allow: ['../..'] }, proxy: { '/v1': 'http://127.0.0.1:8080' } },
})
