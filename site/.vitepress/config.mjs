// The site is built from the pages of docs, as they are. Two variables of the environment
// change it: SITE_BASE is the path that it is served below, and SITE_REPOSITORY the
// address of the repository, for links to its files and to edit a page.
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'
import { githubSlug, linksOfTheTree, mermaidFences, plainFences } from './markdown.mjs'
import { sidebar } from './sidebar.mjs'

const docs = fileURLToPath(new URL('../../docs', import.meta.url))
const repository = process.env.SITE_REPOSITORY?.replace(/\/$/, '')
const icon = `<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><path d='M8 1v6M8 7 3 15M8 7v8M8 7l5 8' stroke='%230f766e' stroke-width='2' fill='none' stroke-linecap='round'/></svg>`

export default defineConfig({
  title: 'Holdfast',
  description: 'A Kubernetes operator for PostgreSQL, MySQL and etcd',
  lang: 'en',
  base: process.env.SITE_BASE || '/',
  srcDir: path.relative(fileURLToPath(new URL('..', import.meta.url)), docs),
  outDir: fileURLToPath(new URL('../../build/site', import.meta.url)),
  cacheDir: fileURLToPath(new URL('../node_modules/.vitepress', import.meta.url)),
  rewrites: { 'README.md': 'index.md', 'adr/README.md': 'adr/index.md' },
  head: [['link', { rel: 'icon', href: `data:image/svg+xml,${icon}` }]],
  markdown: {
    anchor: { slugify: githubSlug },
    attrs: { disable: true },
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
    config(md) {
      md.use(linksOfTheTree, { docs, repository })
      md.use(mermaidFences)
      md.use(plainFences, ['promql'])
    },
  },
  themeConfig: {
    sidebar: sidebar(path.join(docs, 'README.md')),
    outline: [2, 3],
    search: { provider: 'local' },
    ...(repository && {
      editLink: {
        pattern: `${repository}/edit/main/docs/:path`,
        text: 'Edit this page',
      },
    }),
  },
  vite: {
    plugins: [packagesOfThisDirectory()],
    // Diagrams are drawn by a library that is loaded on pages that have one.
    build: { chunkSizeWarningLimit: 2000 },
  },
})

// packagesOfThisDirectory finds what pages import: they are beside this directory, not in it.
function packagesOfThisDirectory() {
  return {
    name: 'packages-of-this-directory',
    enforce: 'pre',
    resolveId(id, importer) {
      return importer?.startsWith(docs) && /^vue(\/|$)/.test(id)
        ? this.resolve(id, fileURLToPath(import.meta.url), { skipSelf: true })
        : null
    },
  }
}
