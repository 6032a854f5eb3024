/** Why: the causal chain of a session, a run or a file, back to its first cause, with its cost. */
import {html, useCallback, useEffect, useMemo, useState} from '../lib/ui.js';
import {get, query} from '../lib/api.js';
import * as store from '../lib/store.js';
import {useLoad, useReloadOn} from '../lib/load.js';
import {link, route, setQuery} from '../lib/router.js';
import {causeWords} from '../lib/rows.js';
import {asCurlGet} from '../lib/commands.js';
import {duration, money} from '../lib/times.js';
import {Empty, Failure, Loading, Menu, StateIcon, Time, copyText} from '../parts/basics.js';
import {Diagram} from '../parts/diagram.js';
import {Icon} from '../parts/icons.js';
import {Sentence} from '../parts/text.js';

const isPhone = matchMedia('(max-width: 760px)');
const RUN = {w: 264, h: 104};
const FIRST = {w: 232, h: 60};

export function Why() {
  const {x = ''} = route.value.query;
  const [text, setText] = useState(x);
  useEffect(() => setText(x), [x]);
  const path = `/why${query({x, path: x.startsWith('/') ? x : undefined})}`;
  const load = useCallback(signal => (x ? get(path, {signal}) : Promise.resolve(null)), [path]);
  const {data, error, isLoading, reload} = useLoad(load, [path]);
  useReloadOn(record => Boolean(x) && ['run_finished', 'run_started'].includes(record.kind) && x.startsWith(record.session), reload);
  const submit = event => { event.preventDefault(); setQuery({x: text.trim()}); };
  return html`
    <div class="head"><h1>Why</h1>
      <form class="search wide" onSubmit=${submit}><${Icon} name="search" />
        <input class="input" data-search list="why-names" aria-label="a session, a run or a file" placeholder="payroll, payroll#3 or /path/to/a/file" value=${text} onInput=${event => setText(event.target.value)} />
        <datalist id="why-names">${[...store.rows.value.values()].slice(0, 200).map(row => html`<option value=${row.name} />`)}</datalist></form>
      ${data && html`<${Menu} label="Why: copy" items=${[
        {label: 'Copy as command', icon: 'command', run: () => copyText(`wakeful why '${x}'`, 'the command')},
        {label: 'Copy as curl', icon: 'copy', run: () => copyText(asCurlGet(path), 'the curl line')},
      ]} />`}
    </div>
    ${!x ? html`<${Suggest} />` : error ? html`<div class="pad"><${Failure} error=${error} retry=${reload} /></div>` : isLoading && !data ? html`<${Loading} />` : data && html`<${Answer} data=${data} />`}`;
}

function Suggest() {
  const ran = [...store.rows.value.values()].filter(row => row.last_run).sort((a, b) => b.last_run.finished_at.localeCompare(a.last_run.finished_at)).slice(0, 12);
  if (!ran.length) return html`<${Empty} title="Nothing ran yet" icon="why"><p>Ask why a session ran or did not, or which run wrote a file.</p><//>`;
  return html`<div class="scroll pad"><p class="quiet">Ask why a session ran or did not, what caused a run, or which run wrote a file. The latest runs:</p>
    <ul class="suggest">${ran.map(row => html`<li key=${row.id}><a href=${link('why', '', {x: `${row.name}#${row.last_run.run}`})} class="row"><${StateIcon} state=${row.last_run.outcome} /><strong>${row.name}#${row.last_run.run}</strong><span class="muted cut">${causeWords(row.last_run.causes)}</span><${Time} at=${row.last_run.finished_at} class="push muted small" /></a></li>`)}</ul></div>`;
}

function Answer({data}) {
  const links = data.links ?? data.outputs?.flatMap(output => output.links ?? []) ?? [];
  const {nodes, edges, cost} = useMemo(() => draw(links, data), [data]);
  return html`<div class="scroll why" tabindex="0" aria-label="the causal chain">
    ${data.words?.length > 0 && html`<ul class="why-words">${data.words.map(words => html`<li><${Sentence} text=${words} /></li>`)}</ul>`}
    ${links.length > 0 && html`<p class="why-cost small muted">${links.length === 1 ? 'One run' : `${links.length} runs`} in this chain, ${duration(cost.seconds)}${cost.usd ? `, ${money(cost.usd)}` : ''}${cost.tokens ? `, ${cost.tokens.toLocaleString()} tokens` : ''}. ${isPhone.matches ? 'The first cause is at the top.' : 'The first cause is on the left.'}</p>
      <${Diagram} nodes=${nodes} edges=${edges} isDown=${isPhone.matches} draw=${node => html`<${Card} node=${node} />`} label="causes and runs" />`}
  </div>`;
}

/** Make the nodes and edges: causes from outside, from a person or a record, then runs, and a path last. */
function draw(links, data) {
  const nodes = new Map();
  const edges = [];
  const cost = {seconds: 0, usd: 0, tokens: 0};
  const put = node => { if (!nodes.has(node.id)) nodes.set(node.id, node); };
  for (const one of links) {
    const id = `${one.session}#${one.run}`;
    if (nodes.has(id)) continue;
    put({id, kind: 'run', ...RUN, link: one});
    cost.seconds += one.usage?.wall_seconds ?? 0;
    cost.usd += one.usage?.usd ?? 0;
    cost.tokens += one.usage?.tokens ?? 0;
    one.led_by.forEach((origin, i) => {
      if (origin.run !== null && origin.session) edges.push({from: `${origin.session}#${origin.run}`, to: id});
      else {
        const first = `first ${id} ${i}`;
        put({id: first, kind: 'first', ...FIRST, origin, causes: one.causes, root: one});
        edges.push({from: first, to: id});
      }
    });
  }
  if (data.about === 'path') {
    put({id: 'path', kind: 'path', ...FIRST, path: data.path});
    for (const output of data.outputs) if (output.run) edges.push({from: `${output.session}#${output.run.run}`, to: 'path'});
  }
  const known = edges.filter(edge => nodes.has(edge.from) && nodes.has(edge.to));
  return {nodes: [...nodes.values()], edges: known, cost};
}

function Card({node}) {
  if (node.kind === 'path') return html`<div class="card card-path"><span class="row"><${Icon} name="file" /><strong class="cut" title=${node.path}>${node.path.split('/').pop()}</strong></span><span class="small muted cut">${node.path}</span></div>`;
  if (node.kind === 'first') {
    const {origin, causes} = node;
    const isPerson = origin.author?.startsWith('person:');
    const path = causes.find(cause => cause.paths?.length)?.paths[0];
    return html`<div class="card card-first" title=${origin.words}><span class="row"><${Icon} name=${isPerson ? 'person' : path ? 'file' : causes[0]?.kind === 'cron' || causes[0]?.kind === 'every' ? 'clock' : 'play'} />
      <strong class="cut">${isPerson ? origin.author.slice(7) : causeWords(causes)}</strong></span><span class="small muted cut">${origin.record || origin.kind ? `${origin.kind?.replaceAll('_', ' ')}` : 'from outside, not by a record'}</span></div>`;
  }
  const one = node.link;
  return html`<a class=${`card card-run is-edge-${one.outcome ?? 'running'}`} href=${link('session', one.session, {at: one.seq})} title=${one.words.join('\n')}>
    <span class="row"><${StateIcon} state=${one.outcome ?? 'running'} /><strong class="cut">${one.session}</strong><span class="muted">#${one.run}</span></span>
    <span class="small quiet cut">${causeWords(one.causes)}</span>
    <span class="small muted cut">${Object.keys(one.written ?? {}).length ? `wrote ${Object.keys(one.written).join(', ')}` : ' '}</span>
    <span class="row small muted"><${Time} at=${one.finished_at ?? one.started_at} /><span class="push">${duration(one.usage?.wall_seconds)} ${money(one.usage?.usd)}</span></span></a>`;
}
