/** Now: the sessions that need you, then all sessions by group. A line unfolds to show why the session does not run. */
import {html, names, useCallback, useEffect, useLayoutEffect, useMemo, useState} from '../lib/ui.js';
import {at, get} from '../lib/api.js';
import * as store from '../lib/store.js';
import {sparks} from '../lib/figures.js';
import {go, link, route, setQuery} from '../lib/router.js';
import {bindKeys} from '../lib/keys.js';
import {FILTERS, filterOf, groupOf, isWanted, reasonOf, shortName, shownState} from '../lib/rows.js';
import {count, money} from '../lib/times.js';
import {useLoad, useReloadOn} from '../lib/load.js';
import {Empty, Failure, Loading, State, StateIcon, Time} from '../parts/basics.js';
import {Bindings} from '../parts/bindings.js';
import {Icon} from '../parts/icons.js';
import {Needs} from '../parts/needs.js';
import {Spark} from '../parts/spark.js';
import {VirtualList} from '../parts/virtual.js';

const isPhone = matchMedia('(max-width: 760px)');
const ROW = () => (isPhone.matches ? 64 : 44);
const GROUP = 36;
const UNFOLDED = 132;

const GROUPINGS = [['group', 'Folder or template'], ['state', 'State'], ['agent', 'Agent'], ['none', 'No groups']];

export function Now() {
  const {filter = 'all', by = 'group', q = ''} = route.value.query;
  const [unfolded, setUnfolded] = useState(() => new Map());
  const [chosen, setChosen] = useState(null);
  const rows = store.rows.value;
  const counts = useMemo(() => countFilters(rows), [rows]);
  const items = useMemo(() => arrange(rows, filter, by, q), [rows, filter, by, q]);
  const place = chosen === null ? null : items.findIndex(item => item.row?.id === chosen);

  useLayoutEffect(() => {
    const step = direction => {
      let next = place === null || place < 0 ? (direction > 0 ? -1 : items.length) : place;
      do { next += direction; } while (items[next] && !items[next].row);
      if (items[next]) setChosen(items[next].row.id);
    };
    const open = () => items[place]?.row && go('session', items[place].row.name);
    return bindKeys({j: () => step(1), k: () => step(-1), Enter: open, o: open, ' ': () => items[place]?.row && toggle(items[place].row.id)});
  }, [items, place, unfolded]);

  const toggle = id => {
    const next = new Map(unfolded);
    if (!next.delete(id)) next.set(id, UNFOLDED);
    setUnfolded(next);
  };
  const setHeight = (id, height) => unfolded.get(id) !== height && setUnfolded(old => (old.has(id) ? new Map(old).set(id, height) : old));
  const height = useCallback(item => (item.row ? ROW() + (unfolded.get(item.row.id) ?? 0) : GROUP), [unfolded]);

  if (!store.isLoaded.value) {
    const {state, words} = store.link.value;
    return html`<div class="head"><h1>Now</h1></div>${state === 'off' ? html`<div class="pad"><${Failure} error=${{title: 'The daemon does not answer', message: `${words} The page reconnects by itself.`}} /></div>` : html`<${Loading} lines="8" />`}`;
  }
  if (!rows.size) return html`<div class="head"><h1>Now</h1></div><${NoSessions} />`;
  return html`
    <div class="head now-head">
      <h1>Now</h1><span class="sub only-wide">${count(rows.size, 'session')}</span>
      <label class="search push"><${Icon} name="search" /><span class="hidden-words">Filter</span>
        <input class="input" data-search type="search" placeholder="Filter  /" value=${q} onInput=${event => setQuery({q: event.target.value}, {replace: true})} /></label>
      <label class="only-wide"><span class="hidden-words">Group by</span>
        <select class="select" value=${by} onChange=${event => setQuery({by: event.target.value}, {replace: true})}>${GROUPINGS.map(([value, label]) => html`<option value=${value}>${label}</option>`)}</select></label>
      <div class="chips" role="group" aria-label="states">
        ${FILTERS.filter(([key]) => key === 'all' || key === filter || counts[key]).map(([key, label]) => html`<button class="filter" aria-pressed=${key === filter} onClick=${() => setQuery({filter: key === 'all' ? undefined : key}, {replace: true})}>${label}<span class="muted">${counts[key]}</span></button>`)}
      </div>
    </div>
    <div class="scroll" tabindex="-1">
      ${filter === 'all' && !q && html`<${Needs} />`}
      ${items.length ? html`<${VirtualList} items=${items} height=${height} reveal=${place} label="sessions" keyOf=${item => item.row?.id ?? `group ${item.group}`}
        draw=${item => (item.row
          ? html`<${Line} row=${item.row} group=${item.group} by=${by} isChosen=${item.row.id === chosen} isUnfolded=${unfolded.has(item.row.id)} toggle=${toggle} setHeight=${setHeight} />`
          : html`<h2 class="group">${by === 'state' ? html`<${State} state=${item.group} />` : item.group || 'No folder'}<span class="muted">${item.count}</span></h2>`)} />`
      : html`<${Empty} title="Nothing matches" icon="search"><p>No session ${q ? html`contains “${q}”` : 'is in this state'}.</p><button class="button" onClick=${() => setQuery({q: '', filter: undefined})}>Show all</button><//>`}
      <div class="foot"></div>
    </div>`;
}

function NoSessions() {
  return html`<${Empty} title="No sessions yet" icon="sleeping">
    <p>A file in sessions.d declares a session: the files it watches and writes, and its command or agent. The session rests until something it watches changes.</p>
    <code>wakeful new hello</code><p class="small muted">It appears here as soon as the file is saved.</p><//>`;
}

function countFilters(rows) {
  const counts = {all: 0, needs: store.needs.value.length};
  for (const row of rows.values()) {
    const kind = filterOf(row);
    counts[kind] = (counts[kind] ?? 0) + 1;
    if (kind !== 'gone') counts.all += 1;
  }
  return counts;
}

const STATE_ORDER = ['asks', 'failed', 'running', 'queued', 'sleeping', 'suspended'];

/** Sort the groups, and the rows of each by name, so that a run does not move a row away from the cursor. */
function arrange(rows, filter, by, text) {
  const groups = new Map();
  for (const row of rows.values()) {
    if (!isWanted(row, filter, text)) continue;
    const group = groupOf(row, by);
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push(row);
  }
  const order = by === 'state' ? (a, b) => STATE_ORDER.indexOf(a) - STATE_ORDER.indexOf(b) : (a, b) => compare(a, b);
  const items = [];
  for (const group of [...groups.keys()].sort(order)) {
    const found = groups.get(group).sort((a, b) => compare(a.name, b.name));
    if (by !== 'none' && (groups.size > 1 || group)) items.push({group, count: found.length});
    for (const row of found) items.push({row, group});
  }
  return items;
}

const compare = new Intl.Collator(undefined, {numeric: true}).compare;

function Line({row, group, by, isChosen, isUnfolded, toggle, setHeight}) {
  const last = row.last_run;
  const state = shownState(row);
  return html`<div class=${names('line', isChosen && 'chosen', isUnfolded && 'unfolded')}>
    <div class="line-main">
      <button class="fold" aria-expanded=${isUnfolded} aria-label=${`why not: ${row.name}`} title="Why not?  Space" onClick=${() => toggle(row.id)}><${Icon} name="chevron" /></button>
      <${StateIcon} state=${state} />
      <a class="line-name cut" href=${link('session', row.name)} title=${row.name}>${shortName(row, group, by)}</a>
      <span class="line-reason cut" title=${row.reason ?? ''}>${reasonOf(row)}</span>
      <span class="line-agent only-wide">${row.agent && html`<span class="chip" title=${row.command ? `runs ${row.command}; its agent is ${row.agent}` : `its agent is ${row.agent}`}><${Icon} name=${row.command ? 'command' : 'agent'} />${row.agent}</span>`}</span>
      <span class="line-spark only-wide"><${Spark} runs=${sparks.value.get(row.name) ?? []} /></span>
      <span class="line-last">${last ? html`<${StateIcon} state=${last.outcome} /><${Time} at=${last.finished_at} class="muted" />` : html`<span class="muted">never ran</span>`}</span>
      <span class="line-next muted only-wide">${row.next?.at && html`<span title=${row.next.what}><${Time} at=${row.next.at} /></span>`}</span>
      <span class="line-cost only-wide" title="cost today (UTC)">${money(row.today?.usd)}</span>
    </div>
    ${isUnfolded && html`<${WhyNot} row=${row} setHeight=${setHeight} />`}
  </div>`;
}

const BINDING = 28;

function WhyNot({row, setHeight}) {
  const {data, error, reload} = useLoad(signal => get(at(row.name), {signal}), [row.name]);
  useReloadOn(record => record.session === row.name, reload);
  const lines = data ? data.bindings.length + data.bindings.filter(one => one.problem || one.held || one.degraded).length : 0;
  const size = data ? 48 + lines * (isPhone.matches ? 44 : BINDING) : UNFOLDED;
  useEffect(() => { setHeight(row.id, size); }, [size]);
  return html`<div class="why-not">
    ${error ? html`<${Failure} error=${error} retry=${reload} />` : !data ? html`<${Loading} lines="3" />` : html`
      <p class="row small"><span class="quiet cut">${reasonOf({...row, ...data})}.</span><a class="plain push" href=${link('why', '', {x: row.name})}>Full explanation</a><a class="plain" href=${link('graph', row.name)}>Graph</a></p>
      <${Bindings} bindings=${data.bindings} />`}
  </div>`;
}
