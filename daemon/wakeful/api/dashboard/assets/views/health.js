/** Health: the daemon, its log and watches, refused specs, limits, isolation, connections. */
import {html, useCallback} from '../lib/ui.js';
import {get} from '../lib/api.js';
import * as store from '../lib/store.js';
import {useLoad, useReloadOn} from '../lib/load.js';
import {link} from '../lib/router.js';
import {asCurlGet} from '../lib/commands.js';
import {bytes, count, duration, full, now} from '../lib/times.js';
import {Failure, Loading, Menu, StateIcon, Time, copyText} from '../parts/basics.js';
import {Icon} from '../parts/icons.js';

export function Health() {
  const load = useCallback(async signal => {
    const paths = ['/health?plain=true', '/doctor', '/top', '/notify', '/webhooks'];
    const [health, doctor, top, notifiers, {webhooks}] = await Promise.all(paths.map(path => get(path, {signal})));
    return {health, doctor, top: {...top, sessions: undefined}, notifiers, webhooks};
  }, []);
  const {data, error, reload} = useLoad(load, []);
  useReloadOn(record => ['spec_declared', 'spec_removed', 'session_slept', 'session_resumed', 'delivery_received'].includes(record.kind), reload, 5000);
  return html`<div class="head"><h1>Health</h1><span class="push row"><button class="button small" onClick=${reload}>Check again</button>
      <${Menu} label="Health: copy" items=${[{label: 'Copy as command', icon: 'command', run: () => copyText('wakeful doctor', 'the command')}, {label: 'Copy as curl', icon: 'copy', run: () => copyText(asCurlGet('/doctor'), 'the curl line')}]} /></span></div>
    <div class="scroll pad" tabindex="0" aria-label="health">${error ? html`<${Failure} error=${error} retry=${reload} />` : !data ? html`<${Loading} />` : html`<${Report} ...${data} />`}</div>`;
}

function Report({health, doctor, top, notifiers, webhooks}) {
  const wrong = health.findings.filter(one => one.level !== 'note').length;
  const uptime = (now.value - Date.parse(doctor.started_at)) / 1000;
  return html`
    <section class=${`verdict-card ${health.healthy ? 'is-good' : 'is-bad'}`}><${StateIcon} state=${health.healthy ? 'succeeded' : 'failed'} />
      <div><h2>${health.healthy ? 'Healthy' : count(wrong, 'problem')}</h2>
      <p class="small muted">${count(doctor.sessions, 'session')}, ${doctor.running} running, ${count(health.watches.targets, 'target')} watched, ${count(store.needs.value.length, 'session')} ${store.needs.value.length === 1 ? 'needs' : 'need'} you</p></div></section>
    ${health.findings.length > 0 && html`<ul class="findings">${health.findings.map(one => html`<${Finding} finding=${one} />`)}</ul>`}
    ${health.left_out > 0 && html`<p class="small muted">${health.left_out} more: wakeful health</p>`}
    <div class="health-cards">
      <${Card} title="Daemon" icon="health" pairs=${[['version', doctor.version], ['process', doctor.pid], ['up for', html`<span title=${full(Date.parse(doctor.started_at))}>${duration(uptime)}</span>`], ['memory', bytes(top.daemon?.rss_bytes ?? top.daemon?.memory_bytes ?? 0)], ['CPU so far', duration(top.daemon?.cpu_seconds)]]} />
      <${Card} title="Log" icon="now" pairs=${[['position', health.log.position.toLocaleString()], ['anchor', health.log.anchor?.toLocaleString() ?? 'none'], ['last verify', health.log.verified ? html`<${Time} at=${health.log.verified.at ?? health.log.verified} />` : html`never (<code>wakeful verify</code>)`], ['writable', health.log.read_only ? `no: ${health.log.read_only}` : 'yes'], ['state', html`<span class="mono cut" title=${doctor.state}>${doctor.state}</span>`], ['kept contents', `${count(doctor.blobs.blobs, 'blob')}, ${bytes(doctor.blobs.size_bytes)}`], ['disk', `${bytes(health.disk.free_bytes)} of ${bytes(health.disk.total_bytes)} free`]]} />
      <${Card} title="Slots" icon="play" pairs=${slotPairs(top.slots)} />
      <${Card} title="Watches" icon="search" pairs=${[['targets', health.watches.targets], ['polled', health.watches.polled], ['not readable', health.watches.unseen]]} />
      <${Card} title="Refused requests" icon="close" pairs=${refusedPairs(health.refusals)} />
      <${Card} title="Isolation" icon="stopped" pairs=${[['Landlock', doctor.isolation.landlock ? `version ${doctor.isolation.landlock}` : 'none'], ['shielding', doctor.isolation.shielding ? 'yes' : 'no'], ['not isolated', doctor.isolation.unisolated.length ? doctor.isolation.unisolated.join(', ') : 'no session'], ['not enforced', doctor.isolation.unenforced.join(', ') || 'nothing']]} />
      <${Card} title="Connections" icon="graph" pairs=${[['control socket', `${doctor.connections.open} of ${doctor.connections.most}`], ['TCP port', `${doctor.http.connections.open} of ${doctor.http.connections.most}`], ['refused', doctor.connections.refused], ['this page', store.isLeader.value ? 'holds the stream' : 'listens to another tab']]} />
      <${Card} title="Specs" icon="file" pairs=${[['folder', html`<span class="mono cut" title=${doctor.specs}>${doctor.specs}</span>`], ['refused', Object.keys(doctor.problems).length], ['waiting for trust', doctor.trust.waiting?.length ?? 0]]} />
    </div>
    <${Notifiers} notifiers=${notifiers} />
    <${Webhooks} webhooks=${webhooks} />
    <${Limits} limits=${doctor.limits} />
    <${Budgets} />`;
}

function Finding({finding}) {
  return html`<li><${StateIcon} state=${finding.level === 'note' ? 'sleeping' : finding.what === 'asks' ? 'asks' : 'failed'} />
    <div><p>${finding.session ? html`<a class="plain" href=${link('session', finding.session)}>${finding.words}</a>` : finding.words} <${Time} at=${finding.since} class="small muted" /></p>
    ${finding.mend && html`<p class="small"><code>${finding.mend}</code></p>`}</div></li>`;
}

const slotPairs = ({used = 0, of = 0, agents} = {}) => [['commands', `${used} of ${of} in use`], ...(agents ? [['agents', `${agents.used} of ${agents.of} in use`]] : [])];

const refusedPairs = refusals => {
  const found = Object.entries(refusals).filter(([, number]) => number > 0).map(([name, number]) => [name.replaceAll('_', ' '), number]);
  return found.length ? found : [['so far', 'none']];
};

function Card({title, icon, pairs}) {
  return html`<section class="health-card"><h2 class="row"><${Icon} name=${icon} class="muted" />${title}</h2><dl>${pairs.map(([key, value]) => html`<div><dt>${key}</dt><dd>${value}</dd></div>`)}</dl></section>`;
}

function Notifiers({notifiers}) {
  if (!notifiers.length) return null;
  return html`<section class="part"><h2>Notifications</h2><ul class="stack">${notifiers.map(one => html`<li key=${one.name} class="row small wrap"><${StateIcon} state=${one.disabled || one.is_troubled ? 'failed' : 'succeeded'} />
    <strong>${one.name}</strong><span class="chip">${one.kind}</span><span class="muted cut">${one.target}</span><span class="push muted">${one.delivered} delivered, ${one.waiting} waiting, ${one.given_up} given up</span>
    ${(one.disabled || one.trying?.problem) && html`<span class="is-failed">${one.disabled ?? one.trying.problem}</span>`}</li>`)}</ul></section>`;
}

function Webhooks({webhooks}) {
  if (!webhooks.length) return null;
  return html`<section class="part"><h2>Webhooks</h2><ul class="stack">${webhooks.map(one => html`<li key=${one.address} class="row small wrap"><${StateIcon} state=${one.problem ? 'failed' : 'succeeded'} />
    <a class="plain" href=${link('session', one.session)}><strong>${one.session}</strong>, ${one.binding}</a><span class="chip">${one.sender}</span><code class="cut">${one.address}</code><span class="push muted">${one.accepted} taken</span>
    ${one.problem && html`<span class="is-failed">${one.problem}</span>`}</li>`)}</ul></section>`;
}

function Limits({limits}) {
  return html`<section class="part"><h2>Limits</h2><div class="limits">${Object.entries(limits.levels).map(([name, level]) => html`<div class="row small"><span class="cut" title=${name}>${level.what}</span><span class="push muted">${level.words}</span></div>`)}</div></section>`;
}

/** The sessions that spent most today, and those whose budget is spent. */
function Budgets() {
  const spent = [...store.rows.value.values()].filter(row => row.today?.usd > 0 || /budget/.test(row.reason ?? '')).sort((a, b) => (b.today?.usd ?? 0) - (a.today?.usd ?? 0)).slice(0, 10);
  if (!spent.length) return null;
  return html`<section class="part"><h2>Money today (UTC)</h2><ul class="stack">${spent.map(row => html`<li key=${row.id} class="row small"><a class="plain cut" href=${link('session', row.name)}>${row.name}</a><span class="muted">${count(row.today.runs, 'run')}, ${row.today.tokens.toLocaleString()} tokens</span><strong class="push">$${row.today.usd.toFixed(3)}</strong></li>`)}</ul></section>`;
}
