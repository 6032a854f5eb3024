/** The side panel of a session: bindings, budget, facts and their origin, runs, forks, people. */
import {html, names} from '../lib/ui.js';
import {link, route, setQuery} from '../lib/router.js';
import {bytes, count, duration, money, version} from '../lib/times.js';
import {may} from '../lib/rights.js';
import {judge} from '../parts/bindings.js';
import {StateIcon, Time} from '../parts/basics.js';
import {act} from '../parts/actions.js';
import {Icon, iconOfKind} from '../parts/icons.js';

export function Aside({session, isPast}) {
  return html`<div class="aside">
    <${Part} title=${isPast || session.state === 'running' ? 'Bindings' : 'Why not'} count=${session.bindings?.length}><${ShortBindings} bindings=${session.bindings ?? []} /><//>
    ${session.budget && html`<${Part} title="Budget"><${Budget} budget=${session.budget} /><//>`}
    <${Part} title="Facts" count=${session.facts?.length} action=${!isPast && may('remember', session.name) && {label: 'Remember', run: () => act({verb: 'remember', body: {name: session.name}})}}><${Facts} session=${session} isPast=${isPast} /><//>
    ${session.handoff && html`<${Part} title="Hand-off"><p class="prose">${session.handoff.slice(0, 1000)}</p><//>`}
    ${session.todo?.length > 0 && html`<${Part} title="To do"><ul class="stack">${session.todo.map(one => html`<li class="row"><${StateIcon} state=${one.status === 'done' ? 'succeeded' : one.status === 'doing' ? 'running' : 'suspended'} />${one.text}</li>`)}</ul><//>`}
    ${session.conflicts?.length > 0 && html`<${Part} title="Conflicts"><ul class="stack">${session.conflicts.map(one => html`<li><strong>${one.key}</strong>: here ${one.ours ?? 'nothing'}, in ${one.fork} ${one.theirs ?? 'nothing'}</li>`)}</ul><//>`}
    ${session.last_runs?.length > 0 && html`<${Part} title="Last runs" count=${session.runs}><${Runs} session=${session} /><//>`}
    ${(session.forks?.length > 0 || session.origin) && html`<${Part} title="Forks"><${Forks} session=${session} /><//>`}
    ${session.participants?.length > 0 && html`<${Part} title="People and runs"><ul class="stack">${session.participants.map(one => html`<li class="row small"><${Icon} name=${one.author.startsWith('person:') ? 'person' : 'command'} class="muted" /><span class="cut">${one.author.replace(/^(person|run):/, '')}</span>${one.role && html`<span class="chip">${one.role}</span>`}<span class="push muted">${count(one.records, 'record')}</span></li>`)}</ul><//>`}
    <${Part} title="Place"><dl class="pairs small"><dt>id</dt><dd class="mono">${session.id}</dd><dt>root</dt><dd class="mono cut" title=${session.root}>${session.root}</dd>
      ${session.confinement && html`<dt>isolation</dt><dd>${session.confinement.isolation}, ${session.confinement.network === false ? 'no network' : session.confinement.network === true ? 'network' : session.confinement.network.join(', ')}</dd>`}
      ${session.state_hash && html`<dt>state</dt><dd class="mono cut" title=${session.state_hash}>${session.state_hash.slice(0, 16)}</dd>`}</dl><//>
  </div>`;
}

function Part({title, count, action, children}) {
  return html`<section class="part"><h2 class="row">${title}${count ? html`<span class="muted">${count}</span>` : null}${action && html`<button class="push more" onClick=${action.run}>${action.label}</button>`}</h2>${children}</section>`;
}

function ShortBindings({bindings}) {
  return html`<ul class="short-bindings">${bindings.map(one => {
    const verdict = judge(one);
    return html`<li key=${one.name} title=${verdict.words ?? ''}><${Icon} name=${iconOfKind(one.kind)} class="muted" /><span class="cut"><strong>${one.name}</strong> <span class="muted">${one.what}</span></span><span class=${`verdict tone-${verdict.tone}`}>${verdict.word}</span>
      <span class="short-versions small muted"><code title=${one.seen}>${version(one.seen)}</code>${one.version !== undefined && one.version !== one.seen && html` → <code class="differs" title=${one.version}>${version(one.version)}</code>`}
        ${one.next_due ? html`<${Time} at=${one.next_due} prefix="next " />` : one.looked_at ? html`<${Time} at=${one.looked_at} prefix="looked " />` : ''}</span></li>`;
  })}</ul>`;
}

const UNIT_WORDS = {usd: 'money', tokens: 'tokens', runs: 'runs', wall: 'time', cpu: 'CPU', wall_seconds: 'time', cpu_seconds: 'CPU'};
const sayAmount = (unit, amount) => (unit === 'usd' ? money(amount) || '$0' : /wall|cpu/.test(unit) ? duration(amount) : amount.toLocaleString());

function Budget({budget}) {
  const lines = Object.entries(budget).filter(([period]) => period !== 'timezone').flatMap(([period, units]) =>
    Object.entries(units).filter(([unit]) => unit !== 'since').map(([unit, {limit, spent}]) => ({period, unit, limit, spent})));
  return html`<ul class="stack">${lines.map(({period, unit, limit, spent}) => {
    const share = limit ? Math.min(1, spent / limit) : 1;
    return html`<li class="budget"><span>${UNIT_WORDS[unit] ?? unit} a ${period}</span><span class="muted">${sayAmount(unit, spent)} of ${sayAmount(unit, limit)}</span>
      <meter min="0" max="1" high=".8" value=${share} aria-label=${`${unit} of the ${period}`}></meter></li>`;
  })}</ul>`;
}

function Facts({session, isPast}) {
  if (!session.facts?.length) return html`<p class="small muted">It has no facts yet.</p>`;
  return html`<ul class="facts">${session.facts.map(fact => html`<li key=${fact.key}>
    <div class="row"><strong>${fact.key}</strong>${!isPast && may('forget', session.name) && html`<button class="push icon-button tiny" aria-label=${`forget ${fact.key}`} title="Forget" onClick=${() => act({verb: 'forget', body: {name: session.name, key: fact.key}, before: fact})}><${Icon} name="close" /></button>`}</div>
    <p>${fact.value.slice(0, 600)}</p>
    <p class="small muted">${fact.author.replace(/^(person|run):/, '')} · <a class="plain" href=${link('session', session.name, {...route.value.query, at: fact.seq})}>record ${fact.seq}</a>${fact.confidence !== null && fact.confidence !== undefined ? ` · ${Math.round(fact.confidence * 100)} % sure` : ''}${fact.rationale ? ` · ${fact.rationale}` : ''}</p>
  </li>`)}</ul>`;
}

function Runs({session}) {
  return html`<ul class="runs">${session.last_runs.map(one => html`<li key=${one.run} class="row small">
    <${StateIcon} state=${one.outcome ?? 'running'} /><a class="plain" href=${link('why', '', {x: `${session.name}#${one.run}`})}>run ${one.run}</a><${Time} at=${one.finished_at ?? one.started_at} class="muted" />
    <span class="push muted">${duration(one.seconds)} ${money(one.usage?.usd)}</span><button class="more" onClick=${() => setQuery({tab: 'output', run: one.run})} title=${bytes(one.output_bytes ?? 0)}>output</button></li>`)}</ul>`;
}

function Forks({session}) {
  return html`<div class="forks small">
    ${session.origin && html`<p>forked from <a class="plain accent" href=${link('session', session.origin.name, {at: session.origin.seq})}>${session.origin.name}</a> at record ${session.origin.seq}</p>`}
    <${ForkTree} forks=${session.forks ?? []} /></div>`;
}

function ForkTree({forks}) {
  if (!forks.length) return null;
  return html`<ul class="tree">${forks.map(one => html`<li key=${one.id}><span class="row"><${Icon} name="fork" class="muted" /><a class=${names('plain')} href=${link('session', one.name)}>${one.name}</a><span class="muted">from record ${one.at}${one.merged ? ', merged' : ''}</span></span><${ForkTree} forks=${one.forks} /></li>`)}</ul>`;
}
