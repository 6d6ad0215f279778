import fs from 'node:fs'

// sidebar is the navigation: the headings of the index, and the pages that the rows below
// each of them link first. A row with several pages and a title is a group.
export function sidebar(index) {
  const sections = []
  for (const line of fs.readFileSync(index, 'utf8').split('\n')) {
    const heading = /^## (.+)$/.exec(line)
    if (heading) sections.push({ text: heading[1], items: [] })
    const cell = /^\| (.*?) \|/.exec(line)?.[1]
    const links = [...(cell?.matchAll(/\[([^\]]+)\]\(([^)]+)\)/g) ?? [])].map(([, text, link]) => ({
      text: text[0].toUpperCase() + text.slice(1),
      link: '/' + link.replace(/(^|\/)README\.md$/, '$1').replace(/\.md$/, ''),
    }))
    const group = /^(\w+): \[/.exec(cell ?? '')?.[1]
    if (group) sections.at(-1).items.push({ text: group, items: links })
    else sections.at(-1)?.items.push(...links)
  }
  return sections
}
