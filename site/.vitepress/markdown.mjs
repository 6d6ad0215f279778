// What makes the pages read as on the forge: its anchors, links to files of the tree, and
// diagrams.
import path from 'node:path'

// githubSlug is the anchor that GitHub gives to a heading.
export function githubSlug(heading) {
  return heading.toLowerCase().replace(/[^\p{L}\p{N}_\- ]/gu, '').replaceAll(' ', '-')
}

// linksOfTheTree points links at README.md to the index of its directory. Links out of
// docs lead to the repository if there is an address; else their text stays, without a link.
export function linksOfTheTree(md, { docs, repository }) {
  md.core.ruler.push('links_of_the_tree', ({ tokens, env }) => {
    const page = path.dirname(path.join(docs, env.relativePath === 'index.md' ? 'README.md' : env.relativePath))
    for (const { children } of tokens) {
      let unlinked = false
      for (const token of children ?? []) {
        if (token.type === 'link_open') {
          unlinked = !point(token, page)
        }
        if (unlinked && (token.type === 'link_open' || token.type === 'link_close')) {
          unlinked = token.type === 'link_open'
          token.tag = 'span'
          token.attrs = null
          token.type = token.type === 'link_open' ? 'span_open' : 'span_close'
        }
      }
    }
  })

  // point rewrites a link, and says whether it leads anywhere.
  function point(token, page) {
    const href = token.attrGet('href')
    if (/^([a-z]+:|#)/.test(href)) return true
    const [target, anchor] = href.split('#')
    const file = path.relative(docs, path.resolve(page, target))
    if (!file.startsWith('..')) {
      token.attrSet('href', href.replace(/(^|\/)README\.md/, '$1index.md'))
      return true
    }
    if (!repository) return false
    const inTree = path.relative(path.dirname(docs), path.resolve(page, target))
    token.attrSet('href', `${repository}/blob/main/${inTree}${anchor ? `#${anchor}` : ''}`)
    return true
  }
}

// mermaidFences renders a fenced block of mermaid by the component Diagram.
export function mermaidFences(md) {
  const fence = md.renderer.rules.fence
  md.renderer.rules.fence = (tokens, i, ...rest) =>
    tokens[i].info === 'mermaid'
      ? `<Diagram source="${encodeURIComponent(tokens[i].content)}"/>\n`
      : fence(tokens, i, ...rest)
}

// plainFences renders fenced blocks of languages that the highlighter does not know as text.
export function plainFences(md, languages) {
  md.core.ruler.push('plain_fences', ({ tokens }) => {
    for (const token of tokens) {
      if (token.type === 'fence' && languages.includes(token.info)) token.info = 'txt'
    }
  })
}
