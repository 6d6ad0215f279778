// The default theme without its fonts: those of the reader's system are used.
import { h } from 'vue'
import { withBase } from 'vitepress'
import DefaultTheme from 'vitepress/theme-without-fonts'
import Diagram from './Diagram.vue'
import './style.css'

const notFound = () =>
  h('main', { class: 'not-found' }, [
    h('h1', 'Page not found'),
    h('p', [h('a', { href: withBase('/') }, 'All pages')]),
  ])

export default {
  extends: DefaultTheme,
  Layout: () => h(DefaultTheme.Layout, null, { 'not-found': notFound }),
  enhanceApp({ app }) {
    app.component('Diagram', Diagram)
  },
}
