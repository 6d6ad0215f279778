// The frame of the pages: where one is, what is read for it, and how often.
import { Component, render } from './vendor/preact.js';
import { html } from './parts.js';
import { Backups, Drift, Fleet, Insights, Plan, Recommendations } from './pages.js';
import { Cluster, remember } from './cluster.js';

const interval = 5000; // milliseconds between two readings

// Each page has a title, the endpoint that it shows, and whether it needs the fleet, too.
const pages = {
  fleet: { title: 'Fleet', view: Fleet, read: () => ['fleet'] },
  drift: { title: 'Drift', view: Drift, read: () => ['fleet'] },
  backups: { title: 'Backups and drills', view: Backups, read: () => ['fleet', 'backups'] },
  insights: { title: 'Insights', view: Insights, read: () => ['fleet'] },
  recommendations: { title: 'Recommendations', view: Recommendations, read: () => ['fleet'] },
  plan: { title: 'Plan', view: Plan, read: () => ['plan'] },
  cluster: {
    title: 'Cluster', view: Cluster, hidden: true,
    read: ([kind, namespace, name]) => ['cluster?' + new URLSearchParams({ kind, namespace, name })],
  },
};

function readAddress() {
  const [name, ...args] = location.hash.replace(/^#\/?/, '').split('/').map(decodeURIComponent);
  return pages[name] ? { name, args } : { name: 'fleet', args: [] };
}

async function readEndpoint(path) {
  const response = await fetch('/api/' + path);
  const text = await response.text();
  let data;
  try {
    data = JSON.parse(text);
  } catch {
    throw new Error(text.trim());
  }
  if (!response.ok) throw new Error(data.error);
  return data;
}

class App extends Component {
  state = { at: readAddress(), data: null, error: '', when: null };

  componentDidMount() {
    addEventListener('hashchange', () => this.open());
    document.addEventListener('visibilitychange', () => document.hidden || this.refresh());
    this.refresh();
  }

  // open shows the page that the address names, and moves the focus to its title.
  open() {
    this.setState({ at: readAddress(), data: null, error: '' }, () => {
      document.getElementById('title')?.focus();
      this.refresh();
    });
  }

  // refresh reads again, and a page in the background not at all. What comes late, for a
  // page that was left, is dropped.
  async refresh() {
    clearTimeout(this.timer);
    const turn = (this.turn = {});
    if (document.hidden) return;
    const { at } = this.state;
    try {
      const data = await Promise.all(pages[at.name].read(at.args).map(readEndpoint));
      if (turn !== this.turn) return;
      if (at.name === 'cluster') remember(data[0]);
      this.setState({ data, error: '', when: new Date() });
    } catch (e) {
      if (turn !== this.turn) return;
      this.setState({ error: e.message || 'kubectl holdfast ui no longer runs' });
    }
    this.timer = setTimeout(() => this.refresh(), interval);
  }

  render(_, { at, data, error, when }) {
    const page = pages[at.name];
    const title = at.name === 'cluster' ? at.args.slice(1).join('/') : page.title;
    document.title = `${title} – Holdfast`;
    return html`
      <header>
        <a class="skip" href=${location.hash || '#/fleet'} onClick=${(e) => { e.preventDefault(); document.getElementById('title').focus(); }}>Skip to the content</a>
        <strong>Holdfast</strong>
        <nav aria-label="Pages"><ul>${Object.entries(pages).filter(([, p]) => !p.hidden).map(([name, p]) => html`
          <li><a href=${'#/' + name} aria-current=${at.name === name ? 'page' : undefined}>${p.title}</a></li>`)}
        </ul></nav>
        <span class="updated">${when ? `read at ${when.toLocaleTimeString()}, every ${interval / 1000} s` : 'reading'}</span>
      </header>
      <main>
        <h1 id="title" tabindex="-1">${title}</h1>
        <div role="status">${error && html`<p class="note error">${error}</p>`}</div>
        ${data ? html`<${page.view} data=${data} args=${at.args} key=${at.args.join('/')} />` : error ? null : html`<p class="quiet">Reading…</p>`}
      </main>`;
  }
}

render(html`<${App} />`, document.getElementById('app'));
