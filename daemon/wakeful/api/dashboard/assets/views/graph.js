/** Graph: the sessions around a focus, with the files that they read and write. Running sessions light up. */
import {html, names, useCallback, useEffect, useMemo, useState} from '../lib/ui.js';
import {get, query} from '../lib/api.js';
import * as store from '../lib/store.js';
import {useLoad, useReloadOn} from '../lib/load.js';
import {go, link, route, setQuery} from '../lib/router.js';
import {groupOf, reasonOf, shownState} from '../lib/rows.js';
import {asCurlGet, quote} from '../lib/commands.js';
import {Empty, Failure, Loading, Menu, StateIcon, copyText} from '../parts/basics.js';
import {Diagram} from '../parts/diagram.js';
import {Icon, iconOfKind} from '../parts/icons.js';

const SESSION = {w: 228, h: 56};
const OTHER = {w: 200, h: 34};
/** With more nodes than this, the sessions of a folder or template are one card until a person opens it. */
const GROUPED_FROM = 80;
const GLOW_MS = 4000;

export function Graph() {
  const {name: focus, query: asked} = route.value;
  const isWhole = asked.all === '1';
  const depth = Number(asked.depth ?? 2);
  const wanted = focus || (isWhole ? '' : pickFocus());
  const place = `/graph${query(isWhole ? {} : {focus: wanted, depth})}`;
  const {data, error, reload} = useLoad(useCallback(signal => get(place, {signal}), [place]), [place]);
  useReloadOn(record => ['spec_declared', 'spec_removed', 'session_opened', 'session_renamed'].includes(record.kind), reload, 1000);
  const [hovered, setHovered] = useState(null);
  const [opened, setOpened] = useState(() => new Set());
  const wave = useWave(hovered);
  const glow = useGlow();
  const shown = useMemo(() => data && group(data, opened), [data, opened]);
  const path = useMemo(() => (wave && shown ? findPath(shown, wave) : null), [wave?.path, wave?.names, shown]);
  const rows = useMemo(() => new Map([...store.rows.value.values()].map(row => [row.name, row])), [store.rows.value]);
  return html`
    <div class="head"><h1>Graph</h1>
      <form class="search wide" onSubmit=${event => { event.preventDefault(); go('graph', new FormData(event.target).get('focus')); }}><${Icon} name="search" />
        <input class="input" data-search name="focus" list="graph-names" aria-label="focus: a session or a file" placeholder="A session, or the path of a file" value=${focus || (isWhole ? '' : wanted)} />
        <datalist id="graph-names">${[...rows.keys()].slice(0, 200).map(one => html`<option value=${one} />`)}</datalist></form>
      <span class="push row wrap">
        ${!isWhole && html`<div class="segments" role="group" aria-label="steps around the focus">${[1, 2, 3, 5].map(one => html`<button aria-pressed=${one === depth} onClick=${() => setQuery({depth: one})}>${one}</button>`)}</div>`}
        <button class="button small" aria-pressed=${isWhole} onClick=${() => go('graph', '', isWhole ? {} : {all: 1})}>${isWhole ? 'Neighbourhood' : 'Whole graph'}</button>
        <${Menu} label="Graph: copy" items=${[{label: 'Copy as curl', icon: 'copy', run: () => copyText(asCurlGet(place), 'the curl line')}, {label: 'Copy as command', icon: 'command', run: () => copyText(['wakeful graph', ...(isWhole ? [] : [quote(whatIs(wanted)), `--depth ${depth}`])].join(' '), 'the command')}]} />
      </span></div>
    ${error ? html`<div class="pad"><${Failure} error=${error} retry=${reload} /></div>` : !shown ? html`<${Loading} />`
    : !shown.nodes.length ? html`<${Empty} title="The graph is empty" icon="graph"><p>Sessions, the files they read and write, and their clocks appear here.</p><//>`
    : html`<p class="graph-words small muted">${wave ? sayWave(wave) : `${data.nodes.length} of ${data.all_nodes} nodes${data.is_cut ? ', the nearest' : ''}. Hover a file to see which sessions a change of it would wake; click it to put it in focus.`}</p>
      <div class="scroll graph" tabindex="0" aria-label="graph"><${Diagram} nodes=${shown.nodes} edges=${tint(shown.edges, path, glow)} focus=${data.focus} label="the files that sessions read and write"
        draw=${node => html`<${Node} node=${node} row=${rows.get(node.what)} isFocus=${node.id === data.focus} wave=${wave} path=${path} glow=${glow} hover=${setHovered} open=${id => setOpened(new Set(opened).add(id))} />`} /></div>`}`;
}

/** Turn the id of a node into the name for a person: a session, or the path of a file. */
const whatIs = node => node.replace(/^(file|session):/, '');

/** Choose the focus if there is none: the session that ran most often. */
function pickFocus() {
  const ran = [...store.rows.value.values()].filter(row => row.last_run && row.folder !== undefined);
  return ran.sort((a, b) => b.runs - a.runs || a.name.localeCompare(b.name))[0]?.name ?? [...store.rows.value.values()][0]?.name ?? '';
}

/** In a large graph, join the sessions of one folder or template to one card. */
function group(data, opened) {
  const sized = data.nodes.map(node => ({...node, ...(node.kind === 'session' ? SESSION : OTHER)}));
  const into = new Map(data.nodes.map(node => [node.id, node.id]));
  if (data.nodes.length <= GROUPED_FROM) return {nodes: sized, edges: data.edges.map(edge => ({...edge, name: edge.binding})), into};
  const groups = new Map();
  for (const node of sized) {
    const row = node.kind === 'session' ? store.findRow(node.what) : null;
    const name = row && groupOf(row, 'group');
    const id = name && !opened.has(`group:${name}`) && node.id !== data.focus ? `group:${name}` : node.id;
    into.set(node.id, id);
    if (id.startsWith('group:')) groups.set(id, {id, kind: 'group', label: name, count: (groups.get(id)?.count ?? 0) + 1, ...SESSION});
  }
  const edges = new Map();
  for (const edge of data.edges) {
    const from = into.get(edge.from), to = into.get(edge.to);
    if (from && to && from !== to) edges.set(`${from} ${to}`, {from, to, wake: edge.wake, name: ''});
  }
  return {nodes: [...sized.filter(node => into.get(node.id) === node.id), ...groups.values()], edges: [...edges.values()], into};
}

/** Load the sessions that would wake if the file under the pointer changed. */
function useWave(node) {
  const path = node?.kind === 'file' ? node.what.replace(/[*?[].*$/, match => (match.startsWith('*') ? 'x' + match.slice(1).replaceAll('*', 'x') : 'x')) : null;
  const load = useCallback(signal => (path ? get(`/plan${query({path})}`, {signal}) : Promise.resolve(null)), [path]);
  const {data} = useLoad(load, [path]);
  return path ? data && {path, id: node.id, waves: data.waves ?? [], names: new Map((data.waves ?? []).flatMap((wave, i) => wave.map(one => [one.session, i + 1])))} : null;
}

/** Name a woken session. A held session keeps its wake until it is released. */
const sayWoken = ({session, held}) => (held ? `${session} (held: ${held.split(/[:;(]/)[0].trim()})` : session);

function sayWave({waves, path}) {
  if (!waves.length) return `A change of ${path} would wake no session.`;
  return `A change would wake ${waves.map((wave, i) => `${i ? 'then ' : ''}${wave.map(sayWoken).join(', ')}`).join('; ')}.`;
}

/** Find the nodes that a change would reach: the file, the sessions that it wakes, the files they write, and so on. */
function findPath({edges, into}, wave) {
  const woken = new Set([...wave.names.keys()].map(name => into.get(`session:${name}`)));
  const reached = new Set([wave.id]);
  const goesOn = edge => reached.has(edge.from) && !reached.has(edge.to) && (!/^(session|group):/.test(edge.to) || (edge.wake && woken.has(edge.to)));
  for (let next = edges.filter(goesOn); next.length; next = edges.filter(goesOn)) next.forEach(edge => reached.add(edge.to));
  return reached;
}

/** The sessions that started or ended a run in the last seconds. They show how a change passes through the graph. */
function useGlow() {
  const [found, setFound] = useState(() => new Set());
  useEffect(() => {
    const timers = new Set();
    const end = store.onRecords(records => {
      const ran = records.filter(one => one.kind === 'run_started' || one.kind === 'run_finished').map(one => one.session);
      if (!ran.length) return;
      setFound(old => new Set([...old, ...ran]));
      const timer = setTimeout(() => { timers.delete(timer); setFound(old => new Set([...old].filter(one => !ran.includes(one)))); }, GLOW_MS);
      timers.add(timer);
    });
    return () => { end(); timers.forEach(clearTimeout); };
  }, []);
  return found;
}

function tint(edges, path, glow) {
  const touched = id => (id.startsWith('session:') ? id.slice(8) : null);
  return edges.map(edge => {
    const from = touched(edge.from), to = touched(edge.to);
    const isInWave = path?.has(edge.from) && path.has(edge.to) && (to === null || edge.wake);
    const isLit = glow.has(from) || glow.has(to);
    return {...edge, tone: names(!edge.wake && to !== null && 'still', path && !isInWave && 'dim', isInWave && 'wave', isLit && 'lit')};
  });
}

function Node({node, row, isFocus, wave, path, glow, hover, open}) {
  if (node.kind === 'group') return html`<button class=${names('card card-group', path?.has(node.id) && 'wave')} onClick=${() => open(node.id)}><strong class="cut">${node.label}</strong><span class="small muted">${node.count} sessions</span></button>`;
  const events = {onMouseEnter: () => hover(node), onMouseLeave: () => hover(null), onFocus: () => hover(node), onBlur: () => hover(null)};
  if (node.kind !== 'session') {
    return html`<a class=${names('card card-other', isFocus && 'focus', path && (path.has(node.id) ? 'wave' : 'dim'))} href=${link('graph', node.id)} title=${node.what} ...${events}><${Icon} name=${iconOfKind(node.kind)} /><span class="cut">${shorten(node.label)}</span></a>`;
  }
  const turn = wave?.names.get(node.what);
  return html`<div class=${names('card card-session', isFocus && 'focus', glow.has(node.what) && 'lit', wave && !turn && 'dim', turn && 'wave')} ...${events}>
    <span class="row">${row && html`<${StateIcon} state=${shownState(row)} />`}<a class="cut plain" href=${link('graph', node.what)} title="put it in focus"><strong>${node.label}</strong></a><a class="push icon-button tiny" href=${link('session', node.what)} aria-label=${`open ${node.what}`}><${Icon} name="chevron" /></a></span>
    <span class="row"><span class="small muted cut">${row ? reasonOf(row) : ''}</span>${turn && html`<span class="chip push">wave ${turn}</span>`}</span></div>`;
}

/** Shorten a label to the end of its path, which is the most specific part. */
const shorten = label => (label.includes('/') && label.length > 24 ? `…/${label.split('/').slice(-2).join('/').slice(-26)}` : label);
