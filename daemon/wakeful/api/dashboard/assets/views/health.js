/** Health: the daemon, its log and watches, specs that were refused, limits, isolation, connections. */
import {html, useCallback} from '../lib/ui.js';
import {get} from '../lib/api.js';
import * as store from '../lib/store.js';
import {useLoad, useReloadOn} from '../lib/load.js';
import {link} from '../lib/router.js';
import {asCurlGet} from '../lib/commands.js';
import {bytes, count, duration, now} from '../lib/times.js';
import {Failure, Loading, Menu, StateIcon, Time, copyText} from '../parts/basics.js';
import {Icon} from '../parts/icons.js';

export function Health() {
  const load = useCallback(async signal => {
    const [doctor, top] = await Promise.all([get('/doctor', {signal}), get('/top', {signal})]);
    return {doctor, top: {...top, sessions: undefined}};
  }, []);
  const {data, error, reload} = useLoad(load, []);
  useReloadOn(record => ['spec_declared', 'spec_removed', 'session_slept', 'session_resumed'].includes(record.kind), reload, 5000);
  return html`<div class="head"><h1>Health</h1><span class="push row"><button class="button small" onClick=${reload}>Look again</button>
      <${Menu} label="Health: copy" items=${[{label: 'Copy as command', icon: 'command', run: () => copyText('wakeful doctor', 'the command')}, {label: 'Copy as curl', icon: 'copy', run: () => copyText(asCurlGet('/doctor'), 'the curl line')}]} /></span></div>
    <div class="scroll pad" tabindex="0" aria-label="health">${error ? html`<${Failure} error=${error} retry=${reload} />` : !data ? html`<${Loading} />` : html`<${Report} ...${data} />`}</div>`;
}

function Report({doctor, top}) {
  const problems = findProblems(doctor);
  const uptime = (now.value - Date.parse(doctor.started_at)) / 1000;
  return html`
    <section class=${`verdict-card ${problems.length ? 'is-bad' : 'is-good'}`}><${StateIcon} state=${problems.length ? 'failed' : 'succeeded'} />
      <div><h2>${problems.length ? `${count(problems.length, 'thing')} to look at` : 'Everything is as it should be'}</h2>
      <p class="small muted">${count(doctor.sessions, 'session')}, ${doctor.running} running, ${count(doctor.targets, 'thing')} watched, ${count(store.needs.value.length, 'session')} ${store.needs.value.length === 1 ? 'needs' : 'need'} you</p></div></section>
    ${problems.length > 0 && html`<ul class="findings">${problems.map(one => html`<li><${StateIcon} state="failed" /><div><strong>${one.session ? html`<a class="plain" href=${link('session', one.session)}>${one.where}</a>` : one.where}</strong><p>${one.words}</p>${one.mend && html`<p class="small"><code>${one.mend}</code></p>`}</div></li>`)}</ul>`}
    <div class="health-cards">
      <${Card} title="Daemon" icon="health" pairs=${[['version', doctor.version], ['process', doctor.pid], ['up for', duration(uptime)], ['since', html`<${Time} at=${doctor.started_at} />`], ['memory', bytes(top.daemon?.rss_bytes ?? top.daemon?.memory_bytes ?? 0)], ['CPU so far', duration(top.daemon?.cpu_seconds)]]} />
      <${Card} title="Log" icon="now" pairs=${[['position', (store.position.value ?? 0).toLocaleString()], ['writable', doctor.read_only ? `no: ${doctor.read_only}` : 'yes'], ['state', html`<span class="mono cut" title=${doctor.state}>${doctor.state}</span>`], ['kept contents', `${count(doctor.blobs.blobs, 'blob')}, ${bytes(doctor.blobs.size_bytes)}`], ['verify', html`<code>wakeful verify</code>`]]} />
      <${Card} title="Slots" icon="play" pairs=${slotPairs(top.slots)} />
      <${Card} title="Isolation" icon="stopped" pairs=${[['Landlock', doctor.isolation.landlock ? `version ${doctor.isolation.landlock}` : 'none'], ['shielding', doctor.isolation.shielding ? 'yes' : 'no'], ['not isolated', doctor.isolation.unisolated.length ? doctor.isolation.unisolated.join(', ') : 'no session'], ['not enforced', doctor.isolation.unenforced.join(', ') || 'nothing']]} />
      <${Card} title="Connections" icon="graph" pairs=${[['open', `${doctor.connections.open} of ${doctor.connections.most}`], ['refused', doctor.connections.refused], ['this page', store.isLeader.value ? 'holds the stream' : 'listens to another tab']]} />
      <${Card} title="Specs" icon="file" pairs=${[['folder', html`<span class="mono cut" title=${doctor.specs}>${doctor.specs}</span>`], ['refused', Object.keys(doctor.problems).length], ['waiting for trust', doctor.trust.waiting?.length ?? 0]]} />
    </div>
    <${Limits} limits=${doctor.limits} />
    <${Budgets} />`;
}

function findProblems(doctor) {
  return [
    ...(doctor.read_only ? [{where: 'The log', words: doctor.read_only}] : []),
    ...Object.entries(doctor.problems).map(([name, words]) => ({where: `${name} is refused`, words})),
    ...Object.entries(doctor.defects ?? {}).map(([name, words]) => ({where: name, words: String(words)})),
    ...doctor.degraded.map(one => ({where: `${one.session}, ${one.binding}`, session: one.session, words: one.words})),
    ...doctor.damaged.map(one => ({where: one.session, session: one.session, words: one.words})),
    ...doctor.guarded.map(one => ({where: one.session ?? one.name, session: one.session ?? one.name, words: one.words ?? 'the loop guard holds it'})),
    ...doctor.limits.over.map(one => ({where: one.session, session: one.session, words: one.words, mend: one.mend})),
    ...(doctor.tokens.problem ? [{where: 'Tokens', words: doctor.tokens.problem}] : []),
  ];
}

const slotPairs = ({used = 0, of = 0, agents} = {}) => [['commands', `${used} of ${of} in use`], ...(agents ? [['agents', `${agents.used} of ${agents.of} in use`]] : [])];

function Card({title, icon, pairs}) {
  return html`<section class="health-card"><h2 class="row"><${Icon} name=${icon} class="muted" />${title}</h2><dl>${pairs.map(([key, value]) => html`<div><dt>${key}</dt><dd>${value}</dd></div>`)}</dl></section>`;
}

function Limits({limits}) {
  return html`<section class="part"><h2>Limits</h2><div class="limits">${Object.entries(limits.levels).map(([name, level]) => html`<div class="row small"><span class="cut" title=${name}>${level.what}</span><span class="push muted">${level.words}</span></div>`)}</div></section>`;
}

/** Who spent most today, and every spent budget. */
function Budgets() {
  const spent = [...store.rows.value.values()].filter(row => row.today?.usd > 0 || /budget/.test(row.reason ?? '')).sort((a, b) => (b.today?.usd ?? 0) - (a.today?.usd ?? 0)).slice(0, 10);
  if (!spent.length) return null;
  return html`<section class="part"><h2>Money today (UTC)</h2><ul class="stack">${spent.map(row => html`<li key=${row.id} class="row small"><a class="plain cut" href=${link('session', row.name)}>${row.name}</a><span class="muted">${count(row.today.runs, 'run')}, ${row.today.tokens.toLocaleString()} tokens</span><strong class="push">$${row.today.usd.toFixed(3)}</strong></li>`)}</ul></section>`;
}
