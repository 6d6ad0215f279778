// The page of one cluster.
import { Component } from './vendor/preact.js';
import uPlot from './vendor/uplot.js';
import { Ago, Command, Missing, State, Table, formatAge, html, shortName } from './parts.js';
import { Advice, DriftValues, driftColumns, insightColumns } from './pages.js';

const mostPoints = 720; // an hour of readings
const history = new Map(); // of each cluster, since the pages were opened

const keyOf = (c) => [c.kind, c.namespace, c.name].join('/');

// Conditions that are bad when true.
const abnormal = ['Stalled', 'Degraded', 'Reconciling'];

// remember keeps what charts show of a reading.
export function remember(c) {
  const points = history.get(keyOf(c)) || [];
  points.push({
    time: Date.now() / 1000,
    lag: Object.fromEntries((c.members || []).map((m) => [m.name, m.lagSeconds ?? null])),
    conditions: Object.fromEntries((c.conditions || []).map((k) => [k.type, k.status === 'True'])),
  });
  history.set(keyOf(c), points.slice(-mostPoints));
}

const colours = ['#1b9e8a', '#c2622d', '#7570b3', '#d33f8d', '#5c9a1e', '#b8930b', '#8a6033', '#708090'];

// Chart draws lines over time. It is a picture, which takes no mouse either: a table beside
// it has the newest values.
class Chart extends Component {
  componentDidMount() { this.draw(); }

  componentDidUpdate() { this.draw(); }

  componentWillUnmount() { this.plot?.destroy(); }

  draw() {
    const { lines, data, axis } = this.props;
    const labels = lines.join();
    if (this.plot && this.labels === labels) {
      this.plot.setData(data);
      return;
    }
    this.plot?.destroy();
    this.labels = labels;
    const style = getComputedStyle(document.documentElement);
    const ink = { stroke: style.getPropertyValue('--quiet'), grid: { stroke: style.getPropertyValue('--line') }, ticks: { stroke: style.getPropertyValue('--line') } };
    this.plot = new uPlot({
      width: Math.max(320, this.box.clientWidth - 16), height: 180, cursor: { show: false }, legend: { show: false },
      axes: [ink, { ...ink, size: 90, ...axis }],
      scales: { y: this.props.scale || {} },
      series: [{}, ...lines.map((label, i) => ({ label, stroke: colours[i % colours.length], width: 2, points: { show: true, size: 3 }, ...this.props.series }))],
    }, data, this.box);
  }

  render({ label }) {
    return html`<div class="chart" role="img" aria-label=${label} ref=${(e) => { this.box = e; }}></div>`;
  }
}

function LagChart({ cluster, points }) {
  const names = (cluster.members || []).filter((m) => points.some((p) => p.lag[m.name] != null)).map((m) => m.name);
  if (!names.length) return html`<p class="quiet">No replica reports its lag.</p>`;
  const data = [points.map((p) => p.time), ...names.map((n) => points.map((p) => p.lag[n] ?? null))];
  return html`<${Chart} label=${`Lag of ${names.join(', ')} in seconds, since this page was opened; the table of members has the newest values`}
    lines=${names} data=${data} axis=${{ values: (u, ticks) => ticks.map((t) => `${t} s`) }} scale=${{ range: (u, min, max) => [0, Math.max(1, max * 1.1)] }} />`;
}

// conditionLines is one line per condition: up while true. The line begins at the last
// transition, where that is in the last hour.
function conditionLines(conditions, points) {
  const start = Date.now() / 1000 - 3600;
  const begins = conditions.map((c) => Math.max(start, Date.parse(c.lastTransitionTime) / 1000));
  const first = points[0].time;
  const times = [...new Set([...begins.filter((t) => t < first), ...points.map((p) => p.time)])].sort((a, b) => a - b);
  const at = new Map(points.map((p) => [p.time, p]));
  const lines = conditions.map((c, i) => times.map((t) => {
    const point = at.get(t);
    const value = point ? point.conditions[c.type] : t >= begins[i] ? points[0].conditions[c.type] : undefined;
    return value === undefined ? null : conditions.length - 1 - i + (value ? 0.7 : 0);
  }));
  return [times, ...lines];
}

function ConditionChart({ conditions, points }) {
  if (!conditions.length) return null;
  const names = conditions.map((c) => c.type);
  return html`<${Chart} label="Conditions over the last hour, a line up while true; the table below has when each changed last"
    lines=${names} data=${conditionLines(conditions, points)} scale=${{ range: [-0.3, names.length] }}
    series=${{ paths: uPlot.paths.stepped({ align: 1 }) }}
    axis=${{ splits: () => names.map((_, i) => i + 0.35), values: () => names.slice().reverse(), size: 110 }} />`;
}

const conditionTone = (c) => (c.status === 'Unknown' ? 'warn' : (c.status === 'True') !== abnormal.includes(c.type) ? 'good' : c.type === 'Reconciling' ? 'warn' : 'bad');

const formatSize = (n) => (n == null ? null : `${(n / 2 ** 20).toFixed(0)} MiB`);

function Summary({ c }) {
  const facts = [
    ['Kind', c.kind], ['Phase', html`<${State} text=${c.suspended ? 'Suspended' : c.phase} />`], ['Version', c.version], ['Image', c.image],
    ['Members ready', `${c.readyReplicas} of ${c.replicas}`], ['Primary', c.primary], ['Declared by', c.declaredBy], ['Age', formatAge(c.created)],
    ['Read-write', c.endpoints?.readWrite], ['Read-only', c.endpoints?.readOnly],
  ];
  return html`<dl class="facts">${facts.filter(([, v]) => v).map(([k, v]) => html`<dt>${k}</dt><dd>${v}</dd>`)}</dl>
    ${c.observed ? null : html`<p class="note">The operator has not acted on the newest spec yet.</p>`}`;
}

const Topology = ({ c }) => html`<ul class="topology">${(c.members || []).map((m) => html`
  <li class=${m.name === c.primary ? 'lead' : ''}><strong>${m.name}</strong><br />${m.role || 'no role'}
    ${m.name !== c.primary && c.primary ? html` <span class="quiet">follows ${c.primary}</span>` : null}<br />
    <${State} text=${m.state} />${m.node ? html` <span class="quiet">on ${m.node}</span>` : null}</li>`)}</ul>`;

export function Cluster({ data: [c] }) {
  const points = history.get(keyOf(c));
  const conditions = c.conditions || [];
  return html`
    <${Missing} list=${c.unknown} />
    <${Summary} c=${c} />
    <h2>Topology</h2><${Topology} c=${c} />
    <h2>Members</h2>
    <${Table} label="Members" rows=${c.members || []} empty="No members yet." columns=${[
      ['Member', (m) => m.name], ['Role', (m) => m.role], ['State', (m) => html`<${State} text=${m.state} />`],
      ['Pod ready', (m) => (m.ready ? 'yes' : 'no')],
      ['Lag', (m) => (m.lagSeconds == null ? null : `${m.lagSeconds.toFixed(1)} s`)], ['Version', (m) => m.version], ['Node', (m) => m.node],
      ['Restarts', (m) => m.restarts], ['Volume', (m) => m.volume && `${m.volume.name} ${m.volume.size || m.volume.requested || ''}`],
      ['Data', (m) => formatSize(m.dataBytes)], ['Message', (m) => m.message],
    ]} />
    <h2>Lag</h2><${LagChart} cluster=${c} points=${points} />
    <h2>Conditions</h2>
    <${ConditionChart} conditions=${conditions} points=${points} />
    <${Table} label="Conditions" rows=${conditions} empty="The operator has reported no condition." columns=${[
      ['Condition', (k) => k.type], ['Status', (k) => html`<${State} text=${k.status} tone=${conditionTone(k)} />`], ['Since', (k) => html`<${Ago} time=${k.lastTransitionTime} />`],
      ['Reason', (k) => k.reason], ['Message', (k) => k.message],
    ]} />
    <h2>Drift</h2>
    <${Table} label="Drift" rows=${(c.drift || []).map((d) => ({ ...d, cluster: c }))} empty="No record of drift." columns=${driftColumns} />
    ${c.drift && c.drift.length ? html`<${DriftValues} />` : null}
    <h2>Insights</h2>
    <${Table} label="Insights" rows=${c.insights} empty="The members' text logs report nothing." columns=${insightColumns} />
    <h2>Recommendations</h2>
    <${Advice} c=${c} />
    <h2>Events</h2>
    <${Table} label="Events" rows=${c.events || []} empty="No events." columns=${[
      ['Reason', (e) => e.reason], ['Last', (e) => html`<${Ago} time=${e.time} />`], ['Type', (e) => e.type], ['Count', (e) => e.count], ['Message', (e) => e.message],
    ]} />
    <h2>On the command line</h2>
    <${Command} text=${`kubectl holdfast status ${shortName(c)} -n ${c.namespace}\nkubectl holdfast drift ${shortName(c)} -n ${c.namespace} --diff`} />`;
}
