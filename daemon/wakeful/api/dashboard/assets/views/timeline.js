/** Timeline: runs as bars, other events as marks, a brush to choose a range, and folded idle time. */
import {html, names, useCallback, useLayoutEffect, useMemo, useRef, useState} from '../lib/ui.js';
import {get, query} from '../lib/api.js';
import {useLoad, useReloadOn} from '../lib/load.js';
import {link, route, setQuery} from '../lib/router.js';
import {makeScale} from '../lib/scale.js';
import {asCurlGet, quote} from '../lib/commands.js';
import {dayOf, duration, full, money, timeOfDay, timeWithSeconds} from '../lib/times.js';
import {Empty, Failure, Loading, Menu, StateIcon, Time, copyText} from '../parts/basics.js';
import {Icon} from '../parts/icons.js';
import {VirtualList} from '../parts/virtual.js';

const RANGES = [['15m', '15 min'], ['1h', '1 h'], ['6h', '6 h'], ['24h', '24 h'], ['7d', '7 d'], ['30d', '30 d']];
const LENGTHS = {'15m': 9e5, '1h': 36e5, '6h': 216e5, '24h': 864e5, '7d': 6048e5, '30d': 2592e6};
const isPhone = matchMedia('(max-width: 760px)');
/** On a phone, the name of a session is above its bars. */
const LANE = isPhone.matches ? 48 : 36;
const MIDDLE = isPhone.matches ? 30 : 18;
const LEAST_BAR = 6;
/** The width of a tick's label, which is to the right of the tick. */
const TICK_WORDS = 52;
const MARK_SHAPES = {coalesced: 'M0-4 4 0 0 4-4 0Z', skipped: 'M-4-4 4 4M4-4-4 4', withdrawn: 'M-4 0H4', 'caught up': 'M-4 3 0-4 4 3Z', 'failed before start': 'M-4-4H4V4H-4Z'};

export function Timeline() {
  const {range = '24h', name, fold = '1'} = route.value.query;
  // A link with a chosen range may be opened later, when that range is older than the last hours.
  const chosenFrom = Number(route.value.query.from);
  const since = chosenFrom && chosenFrom < Date.now() - LENGTHS[range] ? new Date(chosenFrom).toISOString() : range;
  const path = `/timeline${query({since, name, limit: 3000})}`;
  const {data, error, reload} = useLoad(useCallback(signal => get(path, {signal}), [path]), [path]);
  useReloadOn(record => ['run_started', 'run_finished', 'slot_skipped', 'wake_extended'].includes(record.kind), reload, 1000);
  const [chosen, setChosen] = useState(null);
  const [width, area] = useWidth();
  const shown = useMemo(() => data && prepare(data, route.value.query), [data, route.value.query.from, route.value.query.to]);
  const labels = width < 600 ? 0 : 200;
  const scale = useMemo(() => shown && width > 0 && makeScale(shown.from, shown.to, shown.busy, Math.max(200, width - labels - 32), fold === '1'), [shown, width, fold]);
  return html`
    <div class="head"><h1>Timeline</h1>${name && html`<a class="chip" href=${link('timeline', '', {range})} title="all sessions">${name}<${Icon} name="close" /></a>`}
      <span class="push row wrap">
        <div class="segments" role="group" aria-label="range">${RANGES.map(([key, label]) => html`<button aria-pressed=${key === range} onClick=${() => setQuery({range: key, from: undefined, to: undefined})}>${label}</button>`)}</div>
        <label class="check small"><input type="checkbox" checked=${fold === '1'} onChange=${event => setQuery({fold: event.target.checked ? undefined : '0'}, {replace: true})} />Fold idle time</label>
        <${Menu} label="Timeline: copy" items=${[{label: 'Copy as curl', icon: 'copy', run: () => copyText(asCurlGet(path), 'the curl line')}, {label: 'Copy as command', icon: 'command', run: () => copyText(['wakeful timeline', ...(name ? [quote(name)] : []), `--since ${since}`].join(' '), 'the command')}]} />
      </span></div>
    <div class="timeline-area" ref=${area}>
    ${error ? html`<div class="pad"><${Failure} error=${error} retry=${reload} /></div>` : !shown || !scale ? html`<${Loading} />`
    : !shown.lanes.length && !shown.isZoomed ? html`<${Nothing} />`
    : html`
      <${Brush} data=${shown} range=${range} width=${Math.max(200, width - (labels ? 48 : 32))} />
      ${!shown.lanes.length ? html`<${Nothing} />` : html`<div class="scroll timeline" tabindex="0" aria-label="runs">
        <div class="axis"><span class="lane-label"></span><svg width=${Math.max(200, width - labels - 32)} height="28" aria-hidden="true">
          ${scale.ticks.filter(tick => tick.x < width - labels - 32 - TICK_WORDS).map(tick => html`<g><line x1=${tick.x} x2=${tick.x} y1="22" y2="28" class="tick" /><text x=${tick.x + 3} y="18"><title>${full(tick.at)}</title>${sayTick(tick)}</text></g>`)}
          ${scale.folds.map(one => html`<g class="fold-mark"><title>${`idle for ${duration((one.to - one.from) / 1000)}`}</title><path d=${`M${one.x + 8} 14l3-5 4 10 4-10 3 5`} /></g>`)}
        </svg></div>
        <${VirtualList} items=${shown.lanes} height=${laneHeight} keyOf=${lane => lane.session} label="sessions"
          draw=${lane => html`<${Lane} lane=${lane} scale=${scale} now=${shown.to} width=${Math.max(200, width - labels - 32)} chosen=${chosen} choose=${setChosen} />`} />
        <div class="foot"></div>
      </div>`}
      ${data.is_cut && html`<p class="small muted pad">Only the latest are shown. Narrow the range for the rest.</p>`}
      ${chosen && html`<${Detail} item=${chosen} close=${() => setChosen(null)} />`}`}
    </div>`;
}

const Nothing = () => html`<${Empty} title="Nothing ran in this time" icon="timeline"><p>Choose a longer range, or wait: runs appear here as they begin.</p><//>`;
const laneHeight = () => LANE;
/** Let the keys Enter and Space press a part of a drawing, like a button. */
const onPress = run => event => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); run(); } };

function useWidth() {
  const area = useRef(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const sizes = new ResizeObserver(([entry]) => setWidth(Math.round(entry.contentRect.width)));
    sizes.observe(area.current);
    return () => sizes.disconnect();
  }, []);
  return [width, area];
}

/** Make the lanes of the chosen range, sorted by name, so that a run does not move a lane. */
function prepare(data, {from, to}) {
  const whole = {from: Date.parse(data.since), to: Date.parse(data.until)};
  const range = {from: from ? Number(from) : whole.from, to: to ? Number(to) : whole.to};
  const lanes = new Map();
  const laneOf = session => {
    if (!lanes.has(session)) lanes.set(session, {session, runs: [], marks: []});
    return lanes.get(session);
  };
  const busy = [];
  const all = data.runs.map(run => ({...run, start: Date.parse(run.started_at), end: run.finished_at ? Date.parse(run.finished_at) : whole.to}));
  for (const run of all) {
    if (run.end < range.from || run.start > range.to) continue;
    laneOf(run.session).runs.push(run);
    busy.push([run.start, run.end]);
  }
  for (const mark of data.marks) {
    const at = Date.parse(mark.at);
    if (at < range.from || at > range.to) continue;
    laneOf(mark.session).marks.push({...mark, start: at});
    busy.push([at, at]);
  }
  const sorted = [...lanes.values()].sort((a, b) => a.session.localeCompare(b.session));
  return {...range, whole, all, busy, lanes: sorted, isZoomed: Boolean(from)};
}

const sayTick = ({at, step}) => (step >= 432e5 ? dayOf(at) : step < 6e4 ? timeWithSeconds(at) : timeOfDay(at));

function Lane({lane, scale, width, chosen, choose}) {
  return html`<div class="lane">
    <a class="lane-label cut" href=${link('session', lane.session)}>${lane.session}</a>
    <svg width=${width} height=${LANE} role="group" aria-label=${`${lane.session}: ${lane.runs.length} runs`}>
      ${scale.folds.map(one => html`<rect class="idle" x=${one.x} y="0" width=${one.w} height=${LANE} />`)}
      ${lane.runs.map(run => {
        const x = scale.x(run.start), w = Math.max(LEAST_BAR, scale.x(run.end) - x), state = run.outcome ?? 'running';
        const isChosen = chosen?.session === run.session && chosen.run === run.run;
        const words = `run ${run.run} ${state}, ${run.outcome ? duration(run.seconds) : 'under way'}: ${run.causes}`;
        return html`<g class=${names('run-bar', `is-${state}`, isChosen && 'chosen')} role="button" tabindex="0" aria-label=${words} onClick=${() => choose(run)} onKeyDown=${onPress(() => choose(run))}>
          <title>${words}</title><rect class="hit" x=${x + w / 2 - Math.max(w, 24) / 2} y="2" width=${Math.max(w, 24)} height=${LANE - 4} />
          <rect x=${x} y=${MIDDLE - 8} width=${w} height="16" rx="3" fill="currentColor" />${['failed', 'lost'].includes(state) && html`<path d=${`M${x + w / 2} ${MIDDLE - 15}l4 5h-8Z`} fill="currentColor" />`}</g>`;
      })}
      ${lane.marks.map(mark => html`<g class="mark" role="button" tabindex="0" aria-label=${`${mark.kind}: ${mark.words}`} onClick=${() => choose(mark)} onKeyDown=${onPress(() => choose(mark))} transform=${`translate(${scale.x(mark.start)} ${MIDDLE + 12})`}>
        <title>${`${mark.kind}: ${mark.words}`}</title><rect class="hit" x="-10" y="-8" width="20" height="14" /><path d=${MARK_SHAPES[mark.kind] ?? MARK_SHAPES.coalesced} /></g>`)}
    </svg></div>`;
}

/**
 * The whole range as a small histogram. Dragging over a part of it shows that part. Keys: up halves the visible part
 * and down doubles it, left and right move it by a quarter, Escape shows all.
 */
function Brush({data, width, range}) {
  const {from, to} = data.whole;
  const [drag, setDrag] = useState(null);
  const bars = useMemo(() => {
    const found = new Array(120).fill(0);
    for (const run of data.all) found[Math.max(0, Math.min(119, Math.floor(((run.start - from) / (to - from)) * 120)))] += 1;
    return found;
  }, [data]);
  const most = Math.max(1, ...bars);
  const timeAt = event => from + Math.max(0, Math.min(1, (event.clientX - event.currentTarget.getBoundingClientRect().left) / width)) * (to - from);
  const down = event => { event.currentTarget.setPointerCapture(event.pointerId); const at = timeAt(event); setDrag([at, at]); };
  const move = event => drag && setDrag([drag[0], timeAt(event)]);
  const up = () => {
    if (!drag) return;
    const [a, b] = [Math.min(...drag), Math.max(...drag)].map(Math.round);
    setDrag(null);
    if (b - a > (to - from) / 200) setQuery({from: Math.max(from, a), to: Math.min(to, b)});
  };
  const show = (start, length) => {
    const end = Math.min(to, Math.max(from, start) + length);
    setQuery(length >= to - from ? {from: undefined, to: undefined} : {from: Math.round(end - length), to: Math.round(end)}, {replace: true});
  };
  const key = event => {
    const length = data.to - data.from, middle = (data.from + data.to) / 2;
    const steps = {
      ArrowUp: () => length / 2 > (to - from) / 200 && show(middle - length / 4, length / 2), ArrowDown: () => show(middle - length, length * 2),
      ArrowLeft: () => show(data.from - length / 4, length), ArrowRight: () => show(data.from + length / 4, length), Escape: () => show(from, to - from),
    };
    if (!steps[event.key]) return;
    event.preventDefault();
    steps[event.key]();
  };
  const place = at => ((at - from) / (to - from)) * width;
  const [a, b] = drag ? [Math.min(...drag), Math.max(...drag)] : [data.from, data.to];
  return html`<div class="brush"><svg width=${width} height="36" onPointerDown=${down} onPointerMove=${move} onPointerUp=${up} onKeyDown=${key} tabindex="0"
      role="slider" aria-label="part of the range that is shown; drag, or use the arrow keys" aria-valuemin="0" aria-valuemax="100" aria-valuenow=${Math.round(place((a + b) / 2) / width * 100)} aria-valuetext=${`${full(a)} to ${full(b)}`}>
      ${bars.map((count, i) => count > 0 && html`<rect class="brush-bar" x=${(i / 120) * width} y=${32 - (count / most) * 28} width=${Math.max(2, width / 120 - 1)} height=${(count / most) * 28} />`)}
      <rect class="brush-part" x=${place(a)} y="0" width=${Math.max(2, place(b) - place(a))} height="34" rx="4" />
    </svg>
    <p class="row small muted"><time title=${full(from)}>${dayOf(from)} ${timeOfDay(from)}</time>${data.isZoomed ? html`<button class="more" onClick=${() => setQuery({from: undefined, to: undefined})}>Show all of ${range}</button>` : html`<span class="only-wide">drag to zoom, or <kbd>↑</kbd> <kbd>↓</kbd> <kbd>←</kbd> <kbd>→</kbd></span>`}<time class="push" title=${full(to)}>${timeOfDay(to)}</time></p></div>`;
}

function Detail({item, close}) {
  const isRun = item.run !== undefined;
  // A layout effect runs before the next frame. A person may press Escape as soon as the detail is on the screen.
  useLayoutEffect(() => {
    const leave = event => event.key === 'Escape' && close();
    addEventListener('keydown', leave);
    return () => removeEventListener('keydown', leave);
  }, []);
  return html`<aside class="detail" aria-label="chosen">
    <header class="row">${isRun ? html`<${StateIcon} state=${item.outcome ?? 'running'} />` : html`<${Icon} name="clock" />`}<strong class="cut">${item.session}${isRun ? `#${item.run}` : ''}</strong><button class="icon-button push" aria-label="close" onClick=${close}><${Icon} name="close" /></button></header>
    <p>${isRun ? item.causes : `${item.kind}: ${item.words}`}</p>
    ${isRun && item.reason && html`<p class="quiet">${item.reason}</p>`}
    <p class="row small muted wrap"><${Time} at=${item.start} />${isRun && html`<span>${duration(item.seconds)}</span><span>${money(item.usd)}</span>${item.agent && html`<span class="chip"><${Icon} name="agent" />${item.agent}</span>`}`}</p>
    <footer class="row wrap">${isRun && html`<a class="button small" href=${link('why', '', {x: `${item.session}#${item.run}`})}>Why</a><a class="button small" href=${link('session', item.session, {tab: 'output', run: item.run})}>Output</a>`}<a class="button small" href=${link('session', item.session, {at: item.seq})}>Session at that time</a></footer>
  </aside>`;
}
