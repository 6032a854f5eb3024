/** Compares two positions of a session: facts, bindings, hand-off, and the files that its runs wrote, line by line. */
import {html, useCallback} from '../lib/ui.js';
import {get, query} from '../lib/api.js';
import {useLoad} from '../lib/load.js';
import {route, setQuery} from '../lib/router.js';
import {Empty, Failure, Loading, Time, Version} from '../parts/basics.js';
import {Diff} from '../parts/diff.js';

export function Compare({name, at, session}) {
  const {to} = route.value.query;
  const left = at ?? session.checkpoints?.at(-1)?.seq ?? 1;
  const right = to ? `${name}@${to}` : name;
  const load = useCallback(signal => get(`/diff${query({a: `${name}@${left}`, b: right, contents: true})}`, {signal}), [name, left, right]);
  const {data, error, reload} = useLoad(load, [name, left, right]);
  if (error) return html`<div class="pad"><${Failure} error=${error} retry=${reload} /></div>`;
  if (!data) return html`<${Loading} />`;
  const files = data.contents?.files ?? [];
  const isSame = !files.length && !['session', 'facts', 'memory', 'todo', 'spec', 'bindings', 'files'].some(key => data[key].length) && !data.handoff;
  return html`<div class="tool-bar row wrap small">
      <span>record <strong>${data.a.seq}</strong> <${Time} at=${data.a.at} class="muted" /></span><span class="muted">compared with</span>
      <label class="row"><span class="hidden-words">the other position</span><select class="select" value=${to ?? ''} onChange=${event => setQuery({to: event.target.value})}>
        <option value="">now${to ? '' : `, record ${data.b.seq}`}</option>${(session.checkpoints ?? []).map(mark => html`<option value=${String(mark.seq)}>${mark.name}, record ${mark.seq}</option>`)}
        ${to && !session.checkpoints?.some(mark => String(mark.seq) === to) && html`<option value=${to}>record ${to}</option>`}</select></label>
      ${at !== null && html`<button class="button small" onClick=${() => setQuery({to: at, at: undefined})}>Keep ${at} as the other side</button>`}
    </div>
    <div class="scroll pad compare" tabindex="0" aria-label="differences">
      ${isSame && html`<${Empty} title="No differences" icon="succeeded"><p>Drag the scrubber to another record.</p><//>`}
      <${Rows} title="Session" rows=${data.session} />
      <${Rows} title="Facts" rows=${data.facts.map(one => ({key: one.key, a: one.a?.value, b: one.b?.value}))} />
      ${data.handoff && html`<${Rows} title="Hand-off" rows=${[{key: '', ...data.handoff}]} />`}
      <${Rows} title="To-do list" rows=${data.todo} /><${Rows} title="Spec" rows=${data.spec} />
      ${data.bindings.length > 0 && html`<h2>Bindings</h2><ul class="compare-rows">${data.bindings.map(one => html`<li><span>${one.name}</span><${Version} text=${one.seen.a} /><span class="muted">→</span><${Version} text=${one.seen.b} /></li>`)}</ul>`}
      ${files.length > 0 && html`<h2>Files written</h2>${files.map(file => html`<${FileDiff} key=${file.path} file=${file} />`)}`}
    </div>`;
}

const sayValue = value => (value === null || value === undefined ? '–' : typeof value === 'string' ? value : JSON.stringify(value));

function Rows({title, rows}) {
  if (!rows.length) return null;
  return html`<h2>${title}</h2><ul class="compare-rows">${rows.map(one => html`<li><span>${one.key}</span><span class="was">${sayValue(one.a)}</span><span class="muted">→</span><span class="is">${sayValue(one.b)}</span></li>`)}</ul>`;
}

/** A diff of at least this many characters is folded until a person opens it. */
const FOLDED_FROM = 4000;

function FileDiff({file}) {
  return html`<details class="file-diff" open=${(file.diff ?? '').length < FOLDED_FROM}><summary class="row"><code class="cut">${file.path}</code><span class="chip">${file.change}</span></summary>
    ${file.diff ? html`<${Diff} text=${file.diff} />` : html`<p class="small muted">${file.words ?? 'Its contents were not kept.'}</p>`}</details>`;
}
