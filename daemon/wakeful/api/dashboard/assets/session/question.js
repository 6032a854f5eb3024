/** The question of a session, and what the answer "yes" would allow: a run on the changes, or a tool call. */
import {html, useCallback} from '../lib/ui.js';
import {at as address, get} from '../lib/api.js';
import {useLoad} from '../lib/load.js';
import {reasonOf} from '../lib/rows.js';
import {Time} from '../parts/basics.js';
import {Diff} from '../parts/diff.js';
import {Answer} from '../parts/needs.js';

export function Question({row}) {
  const isApproval = ['approval', 'permission'].includes(row.needs.kind);
  const load = useCallback(signal => (isApproval ? get(address(row.name, '/question'), {signal}) : Promise.resolve(null)), [row.name, isApproval]);
  const {data} = useLoad(load, [row.name, row.seq]);
  return html`<section class="need need-asks ask-here" aria-label="it asks you">
    <p><strong>${reasonOf(row)}</strong>${row.needs.until && html` <span class="small">denied <${Time} at=${row.needs.until} /></span>`}</p>
    ${data && html`<div class="asked-changes">${(data.changes ?? []).map(change => html`<div key=${change.binding}>
      ${change.kind !== 'first' && html`<p class="small quiet">${change.binding}: ${change.words}${change.problem ? ` (${change.problem})` : ''}</p>`}
      ${change.diffs.map(one => html`<${Change} change=${one} />`)}</div>`)}
      ${data.call && html`<p class="small quiet">It would call <code>${data.call.name}</code></p>${data.call.diff ? html`<${Change} change=${data.call.diff} />` : html`<pre class="block">${data.call.arguments.slice(0, 8000)}</pre>`}`}</div>`}
    <${Answer} row=${row} isHere />
  </section>`;
}

function Change({change}) {
  return html`<code class="small">${change.path}</code>${change.diff ? html`<${Diff} text=${change.diff} />` : null}${change.note && html`<p class="small muted">${change.note}</p>`}`;
}
