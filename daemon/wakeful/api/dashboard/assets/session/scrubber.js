/** The scrubber: a slider over the whole log of a session. Dragging it shows the state at that record. */
import {html, useCallback, useEffect, useRef, useState} from '../lib/ui.js';
import {at as address, getLines, query} from '../lib/api.js';
import {useLoad} from '../lib/load.js';
import {route, setQuery} from '../lib/router.js';
import {may} from '../lib/rights.js';
import {Time} from '../parts/basics.js';
import {act} from '../parts/actions.js';
import {Icon} from '../parts/icons.js';

const MARKS_SHOWN = 300;
const DRAG_PAUSE_MS = 90;

export function Scrubber({name, seq, at, session}) {
  const [dragged, setDragged] = useState(null);
  const timer = useRef(0);
  const marks = useMarks(name, Math.floor(seq / 25));
  const shown = dragged ?? at ?? seq;
  const goTo = position => setQuery({at: position >= seq ? undefined : Math.max(1, position)}, {replace: true});
  const drag = event => {
    const position = Number(event.target.value);
    setDragged(position);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => { setDragged(null); goTo(position); }, DRAG_PAUSE_MS);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  const here = useRecord(name, at);
  return html`<div class=${`scrubber ${at === null ? '' : 'past'}`}>
    <div class="scrubber-line">
      <button class="icon-button" aria-label="one record back" title="[" onClick=${() => goTo((at ?? seq) - 1)} disabled=${shown <= 1}><${Icon} name="chevron" class="left" /></button>
      <div class="scrubber-track">
        <svg class="scrubber-marks" preserveAspectRatio="none" viewBox="0 0 1000 16" aria-hidden="true">
          ${marks.map(mark => html`<line key=${mark.seq} class=${`mark-${mark.kind} ${mark.outcome ? `is-${mark.outcome}` : ''}`} x1=${place(mark.seq, seq)} x2=${place(mark.seq, seq)} y1=${mark.kind === 'checkpoint_marked' ? 0 : 5} y2="16" />`)}
        </svg>
        <input type="range" min="1" max=${Math.max(seq, 1)} value=${shown} onInput=${drag} aria-label="position in the log" aria-valuetext=${`record ${shown} of ${seq}`} />
      </div>
      <button class="icon-button" aria-label="one record forward" title="]" onClick=${() => goTo((at ?? seq) + 1)} disabled=${shown >= seq}><${Icon} name="chevron" /></button>
      <span class="scrubber-words small">${at === null && dragged === null ? html`<span class="muted">now, record ${seq}</span>` : html`<strong>record ${shown}</strong><span class="muted"> of ${seq}</span>`}</span>
    </div>
    ${at !== null && html`<div class="scrubber-past row wrap">
      <span class="cut small">${here ? html`<${Time} at=${here.at} />: ${here.words}` : ' '}</span>
      <span class="push row wrap">
        ${may('fork', name) && html`<button class="button small" onClick=${() => act({verb: 'fork', body: {name, at: String(at)}})}><${Icon} name="fork" />Fork from here</button>`}
        ${may('rewind', name) && html`<button class="button small danger" onClick=${() => act({verb: 'rewind', body: {name, to: String(at)}, before: {seq}, done: () => setQuery({at: undefined})})}>Rewind to here</button>`}
        ${may('save', name) && html`<button class="button small" onClick=${() => act({verb: 'save', body: {name, at: String(at)}})}>Checkpoint</button>`}
        ${route.value.query.tab !== 'compare' && html`<button class="button small" onClick=${() => setQuery({tab: 'compare'})}>Compare with now</button>`}
        <button class="button small primary" onClick=${() => setQuery({at: undefined})}>Back to now</button>
      </span>
    </div>`}
    ${session.checkpoints?.length > 0 && at === null && html`<div class="checkpoints small">
      ${session.checkpoints.map(mark => html`<button class="chip" title=${mark.note ?? ''} onClick=${() => goTo(mark.seq)}><${Icon} name="file" />${mark.name}</button>`)}
    </div>`}
  </div>`;
}

const place = (seq, last) => (last <= 1 ? 0 : ((seq - 1) / (last - 1)) * 1000);

function useMarks(name, turn) {
  const kinds = ['run_started', 'run_finished', 'checkpoint_marked', 'session_rewound', 'message_added'];
  const load = useCallback(signal => getLines(address(name, `/log${query({kind: kinds, last: MARKS_SHOWN})}`), {signal}), [name]);
  const {data} = useLoad(load, [name, turn]);
  return (data ?? []).filter(one => one.kind !== 'run_started').map(one => ({seq: one.seq, kind: one.kind, outcome: one.payload?.outcome}));
}

function useRecord(name, at) {
  const load = useCallback(signal => (at === null ? Promise.resolve([]) : getLines(address(name, `/log${query({from: at, to: at, words: true})}`), {signal})), [name, at]);
  return useLoad(load, [name, at]).data?.[0];
}
