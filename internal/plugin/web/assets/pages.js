// The pages about all clusters, and the plan.
import { Component } from './vendor/preact.js';
import { Ago, Command, Missing, State, Table, clusterLink, formatAge, html, shortName } from './parts.js';

const pageSize = 50;

const orders = {
  name: (a, b) => (a.namespace + '/' + a.name).localeCompare(b.namespace + '/' + b.name),
  // What needs a person first.
  state: (a, b) => (a.phase === 'Ready') - (b.phase === 'Ready') || orders.name(a, b),
  newest: (a, b) => b.created.localeCompare(a.created),
};

// Turn is a button to another page. It keeps the focus where there is no page to turn to: a
// button that is disabled would lose it, and with it the place of a person without a mouse.
const Turn = ({ to, last, onTurn, children }) => {
  const none = to < 0 || to > last;
  return html`<button aria-disabled=${none ? 'true' : undefined} onClick=${() => none || onTurn(to)}>${children}</button>`;
};

// Fleet shows a page of the clusters that match. The buttons to its other pages come before
// the table: behind it, the tabulator would reach them after 50 links.
export class Fleet extends Component {
  state = { search: '', only: '', order: 'name', page: 0 };

  render({ data: [fleet] }, { search, only, order, page }) {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    const found = fleet.clusters
      .filter((c) => (!only || (c.phase || 'Unknown') === only) &&
        words.every((w) => `${c.kind} ${c.namespace}/${shortName(c)} ${c.name} ${c.version} ${c.message}`.toLowerCase().includes(w)))
      .sort(orders[order]);
    const last = Math.max(0, Math.ceil(found.length / pageSize) - 1);
    const at = Math.min(page, last);
    const phases = [...new Set(fleet.clusters.map((c) => c.phase || 'Unknown'))].sort();
    const turn = (to) => this.setState({ page: to });
    const set = (name) => (e) => this.setState({ [name]: e.target.value, page: 0 });
    return html`
      <${Missing} list=${fleet.unknown} />
      <div class="tools">
        <label>Search <input type="search" value=${search} onInput=${set('search')} /></label>
        <label>Phase <select value=${only} onChange=${set('only')}>
          <option value="">all</option>${phases.map((p) => html`<option value=${p}>${p}</option>`)}
        </select></label>
        <label>Order <select value=${order} onChange=${set('order')}>
          <option value="name">by name</option><option value="state">not ready first</option><option value="newest">newest first</option>
        </select></label>
        <span role="status" id="count">${found.length} of ${fleet.clusters.length} clusters${fleet.namespace ? ` in namespace ${fleet.namespace}` : ''}</span>
      </div>
      ${last > 0 && html`<div class="tools">
        <${Turn} to=${at - 1} last=${last} onTurn=${turn}>Previous page<//>
        <span role="status">page ${at + 1} of ${last + 1}</span>
        <${Turn} to=${at + 1} last=${last} onTurn=${turn}>Next page<//>
      </div>`}
      <${Table} label="Clusters" rows=${found.slice(at * pageSize, (at + 1) * pageSize)} empty="No clusters." columns=${[
        ['Cluster', (c) => clusterLink(c)],
        ['Namespace', (c) => c.namespace],
        ['Version', (c) => c.version],
        ['Ready', (c) => `${c.readyReplicas}/${c.replicas}`],
        ['Primary', (c) => html`<span class="name">${c.primary}</span>`],
        ['Phase', (c) => html`<${State} text=${c.suspended ? 'Suspended' : c.phase} />`],
        ['Synced', (c) => html`<${State} text=${c.synced} />`],
        ['Age', (c) => formatAge(c.created)],
        ['Status', (c) => c.message],
      ]} />`;
  }
}

// gather makes one list of what each cluster has, with the cluster.
const gather = (fleet, field) => fleet.clusters.flatMap((c) => (c[field] || []).map((item) => ({ ...item, cluster: c })));

// declaredValue is a command that prints what a record of drift is about, as it is declared: an
// object that was put back has that. Fields of lists and names with dots are found by a person.
const declaredValue = (d) => {
  if (d.object.startsWith('Secret/')) return 'of a Secret: it is not shown';
  if (d.action !== 'Reverted') return html`<code>kubectl holdfast drift ${shortName(d.cluster)} -n ${d.cluster.namespace} --diff</code>`;
  const output = /^(\.[A-Za-z0-9_-]+)+$/.test(d.path || '') ? `jsonpath='{${d.path}}'` : 'yaml';
  return html`<code>kubectl get ${d.object} -n ${d.cluster.namespace} -o ${output}</code>`;
};

// DriftValues says where values are: a record names the field and who wrote it, and no value, for
// any field may hold a secret.
export const DriftValues = () => html`<p class="quiet">Records have no values, since any field may hold a secret. What was declared is in force again: the command in the last column prints it.
  What another client had written is in the API server's audit log, if that records requests.
  While an object still differs, <code>kubectl holdfast drift NAME --diff</code> compares both, and masks Secrets. It needs to read Secrets, which these pages never do.</p>`;

// driftColumns are those of a record of drift, with its cluster.
export const driftColumns = [
  ['Detected', (d) => html`<${Ago} time=${d.time} />`],
  ['Object', (d) => d.object],
  ['Change', (d) => html`<div class="diff">
    <del>${d.operation === 'deleted' ? '− deleted' : `− ${d.path || 'object'}`} by ${d.manager || 'unknown'} (${d.operation || 'unknown'})</del>
    ${d.action === 'Reverted' && html`<ins>+ declared value applied by holdfast</ins>`}
  </div>`],
  ['Action', (d) => html`<${State} text=${d.action} />`],
  ['Declared value', declaredValue],
];

export function Drift({ data: [fleet] }) {
  const records = gather(fleet, 'drift').sort((a, b) => b.time.localeCompare(a.time));
  const drifting = fleet.clusters.filter((c) => c.synced && c.synced !== 'Synced');
  return html`
    <${Missing} list=${fleet.unknown} />
    <h2>Timeline</h2>
    <${Table} label="Drift" rows=${records} empty="No cluster has a record of drift." columns=${[
      driftColumns[0],
      ['Cluster', (d) => html`${clusterLink(d.cluster)} <span class="quiet">${d.cluster.namespace}</span>`],
      ...driftColumns.slice(1),
    ]} />
    <${DriftValues} />
    <h2>Not as declared now</h2>
    ${drifting.length
      ? drifting.map((c) => html`<p>${clusterLink(c)}: <${State} text=${c.synced} /></p>
          <${Command} text=${`kubectl holdfast drift ${shortName(c)} -n ${c.namespace} --diff`} />`)
      : html`<p class="quiet">Every cluster is as declared.</p>`}`;
}

export function Backups({ data: [fleet, list] }) {
  const clusters = fleet.clusters.filter((c) => c.backups);
  const drill = (d) => (!d ? null : d.running ? html`<${State} text="Running" tone="warn" />` : d.lastTime
    ? html`<${State} text=${d.result} /> <${Ago} time=${d.lastTime} />${d.duration ? ` in ${d.duration}` : ''}${d.message ? `: ${d.message}` : ''}` : 'none yet');
  return html`
    <${Missing} list=${[...(fleet.unknown || []), ...(list.unknown || [])]} />
    <h2>Clusters</h2>
    <${Table} label="Clusters with their newest backup and drill" rows=${clusters} empty="No clusters." columns=${[
      ['Cluster', (c) => html`${clusterLink(c)} <span class="quiet">${c.namespace}</span>`],
      ['Newest good backup', (c) => c.backups.newest ? html`${c.backups.newest.name}, begun <${Ago} time=${c.backups.newest.time} />`
        : html`<${State} text=${c.backups.off ? 'turned off' : 'none yet'} tone="warn" />`],
      ['Next', (c) => c.backups.next && html`<time datetime=${c.backups.next}>${c.backups.next}</time>`],
      ['Drill', (c) => drill(c.backups.drill)],
    ]} />
    <h2>Backups</h2>
    <${Table} label="Backups" rows=${list.backups} empty="No backups." columns=${[
      ['Backup', (b) => b.name],
      ['Cluster', (b) => html`${clusterLink({ ...b, name: b.cluster })} <span class="quiet">${b.namespace}</span>`],
      ['State', (b) => html`<${State} text=${b.stage} />`],
      ['Begun', (b) => html`<${Ago} time=${b.started} />`],
      ['Duration', (b) => b.duration],
      ['Size', (b) => b.size],
      ['Source', (b) => b.source],
      ['Message', (b) => b.message],
    ]} />`;
}

export const insightColumns = [
  ['Class', (i) => i.class],
  ['Severity', (i) => html`<${State} text=${i.severity} />`],
  ['Count', (i) => i.count],
  ['Last', (i) => html`<${Ago} time=${i.last} />`],
  ['First', (i) => html`<${Ago} time=${i.first} />`],
  ['Member', (i) => i.members.map((m) => m.member).join(', ')],
  ['Meaning and remedy', (i) => html`${i.meaning} <strong>${i.remedy}</strong>`],
];

export function Insights({ data: [fleet] }) {
  return html`
    <${Missing} list=${fleet.unknown} />
    <p class="quiet">What the operator recorded in <code>status.insights</code>. <code>kubectl holdfast insights NAME</code> asks the members' agents for more.</p>
    <${Table} label="Insights" rows=${gather(fleet, 'insights').sort((a, b) => b.last.localeCompare(a.last))}
      empty="The members' text logs report nothing." columns=${[
        insightColumns[0],
        ['Cluster', (i) => html`${clusterLink(i.cluster)} <span class="quiet">${i.cluster.namespace}</span>`],
        ...insightColumns.slice(1),
      ]} />`;
}

const recommendationColumns = [
  ['Field', (r) => html`<span class="name">${r.field}</span>`],
  ['Change', (r) => (r.value ? html`${r.current} → <strong>${r.value}</strong>` : html`${r.current}, and no larger value fits`)],
  ['Takes', (r) => (r.computed ? `restart, also for ${r.computed.join(', ')}` : r.restart ? 'restart' : 'reload')],
  ['Evidence', (r) => r.evidence],
  ['Since', (r) => html`<${Ago} time=${r.since} />`],
];

const untriedColumn = ['Why it is not tried', (r) => r.untried && html`${r.untried.message} <span class="quiet">(${r.untried.reason})</span>`];

const tuningColumns = [
  ['Setting', (t) => html`<span class="name">spec.parameters.${t.name}</span>`],
  ['Value', (t) => (t.from ? html`${t.from} → <strong>${t.value}</strong>` : t.value)],
  ['State', (t) => html`<${State} text=${t.state} tone=${t.tone} />`],
  ['Evidence', (t) => t.evidence || t.reason],
  ['Since', (t) => html`<${Ago} time=${t.since} />`],
];

// listTuned is what mode Apply keeps, tries, and does not try for a time.
function listTuned(tuning) {
  const { settings = [], trial, resting = [] } = tuning || {};
  return [
    ...settings.map((t) => ({ ...t, state: 'kept', tone: 'good' })),
    ...(trial ? [{ ...trial, state: 'tried', tone: 'warn' }] : []),
    ...resting.map((t) => ({ ...t, state: `${t.quarantined ? 'in quarantine' : 'not tried'} until ${(t.until || '').slice(0, 10)}`, tone: 'warn' })),
  ];
}

const isTuned = (c) => c.tuningMode === 'Apply' || listTuned(c.tuning).length > 0;

// describeMode says what the operator changes of a cluster by itself.
const describeMode = (c) => ({
  Apply: 'The operator tries settings here (spec.tuning.mode is Apply): a value that is tried or kept is in force without a commit. It never changes what the spec declares, nor resources.',
  Off: 'Nothing is recommended here (spec.tuning.mode is Off).',
}[c.tuningMode] || 'The operator changes none of these: commit what you agree with.');

// Advice is what is recommended of a cluster, and what mode Apply does with it.
export function Advice({ c }) {
  const list = c.recommendations || [];
  const name = `${c.namespace}/${c.name}`;
  return html`
    <p class="quiet">${describeMode(c)}</p>
    <${Table} label=${`Recommendations for ${name}`} rows=${list} empty="Nothing is recommended."
      columns=${list.some((r) => r.untried) ? [...recommendationColumns, untriedColumn] : recommendationColumns} />
    ${isTuned(c) ? html`<h3>Tuned by the operator</h3>
      <${Table} label=${`Settings of ${name} that are tuned`} rows=${listTuned(c.tuning)} empty="No setting is kept or tried." columns=${tuningColumns} />` : null}`;
}

export function Recommendations({ data: [fleet] }) {
  const advised = fleet.clusters.filter((c) => (c.recommendations && c.recommendations.length) || listTuned(c.tuning).length);
  return html`
    <${Missing} list=${fleet.unknown} />
    <p class="quiet">Settings and resources that should change, by what members measured.</p>
    ${advised.length ? null : html`<p class="quiet">Nothing is recommended.</p>`}
    ${advised.map((c) => html`<section><h2>${clusterLink(c)} <span class="quiet">${c.namespace}</span></h2>
      <${Advice} c=${c} />
      <${Command} text=${`kubectl holdfast recommend ${shortName(c)} -n ${c.namespace} -o patch`} /></section>`)}`;
}

export function Plan({ data: [page] }) {
  if (!page.plan) {
    return html`<p>To see here what declarations will do, start the pages with their file. It is read again each time:</p>
      <${Command} text="kubectl holdfast ui -f orders.yaml" />
      <p>To send a dry run too, or to let CI comment on a pull request:</p>
      <${Command} text="kustomize build shop/production | kubectl holdfast plan -f -" />`;
  }
  const { plan } = page;
  return html`
    <${Missing} title="Not known" list=${plan.clusters.flatMap((c) => (c.unknown || []).map((u) => `${c.name}: ${u}`))} />
    ${(plan.notes || []).map((n) => html`<p class="quiet">${n}</p>`)}
    ${plan.clusters.map((c) => html`<section>
      <h2>${c.kind} ${c.namespace}/${c.name}: ${c.action}</h2>
      ${(c.refused || []).map((f) => html`<p class="note error">Refused: ${f.reason}: ${f.message}</p>`)}
      ${(c.risks || []).map((r) => html`<p class="note error">Data at risk: ${r}</p>`)}
      ${(c.oneWay || []).map((r) => html`<p class="note">One-way: ${r}</p>`)}
    </section>`)}
    <h2>As kubectl holdfast plan prints it</h2>
    <${Command} label="The plan as text" text=${page.text} />`;
}
