// What the pages share: elements, formats, and tables.
import { h } from './vendor/preact.js';
import htm from './vendor/htm.js';

export const html = htm.bind(h);

const prefixes = { PostgresCluster: 'pg', MySQLCluster: 'my', EtcdCluster: 'ec' };

export const shortName = (c) => `${prefixes[c.kind] || c.kind}/${c.name}`;

export const clusterLink = (c) =>
  html`<a href=${'#/cluster/' + [c.kind, c.namespace, c.name].map(encodeURIComponent).join('/')}>${shortName(c)}</a>`;

// formatAge is how long ago something was, as kubectl writes it.
export function formatAge(time) {
  if (!time) return '–';
  const s = Math.max(0, (Date.now() - Date.parse(time)) / 1000);
  if (s < 120) return `${Math.floor(s)}s`;
  if (s < 7200) return `${Math.floor(s / 60)}m`;
  if (s < 172800) return `${Math.floor(s / 3600)}h`;
  return `${Math.floor(s / 86400)}d`;
}

export const Ago = ({ time }) => (time ? html`<time datetime=${time} title=${time}>${formatAge(time)} ago</time>` : '–');

const tones = {
  good: ['Ready', 'Synced', 'Completed', 'Streaming', 'Running', 'Passed', 'Reverted'],
  bad: ['Failed', 'Stalled', 'Contested', 'Critical', 'Error'],
};
const marks = { good: '✔', bad: '✖', warn: '!' };

// State is a word with a mark: colour alone says nothing.
export function State({ text, tone }) {
  if (!text) return html`<span class="quiet">–</span>`;
  const t = tone || Object.keys(tones).find((k) => tones[k].includes(text)) || 'warn';
  return html`<span class=${t}><span aria-hidden="true">${marks[t]} </span>${text}</span>`;
}

// Table has columns of [title, row => cell]; the first names the row.
export function Table({ label, columns, rows, empty }) {
  if (!rows.length) return html`<p class="quiet">${empty}</p>`;
  const [first, ...others] = columns;
  return html`<div class="scroll" role="region" aria-label=${label} tabindex="0">
    <table>
      <thead><tr>${columns.map(([title]) => html`<th scope="col">${title}</th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr>
        <th scope="row">${first[1](row)}</th>
        ${others.map(([, cell]) => html`<td>${cell(row) ?? '–'}</td>`)}
      </tr>`)}</tbody>
    </table>
  </div>`;
}

// Missing lists what could not be read: the rest of the page is shown nevertheless.
export const Missing = ({ list, title = 'Not shown, since it could not be read' }) =>
  list && list.length
    ? html`<div class="note" role="note" aria-label=${title}><strong>${title}:</strong>
        <ul>${list.map((text) => html`<li>${text}</li>`)}</ul></div>`
    : null;

// Command is a text for the command line, or one that it prints, in a region of its own name.
export const Command = ({ text, label = `Command: ${text.split('\n')[0]}` }) => html`<pre tabindex="0" role="region" aria-label=${label}><code>${text}</code></pre>`;
