/** The sessions that wait for a person. A question can be answered here, a failure can be inspected or tried again. */
import {html, useState} from '../lib/ui.js';
import * as store from '../lib/store.js';
import {link, setQuery} from '../lib/router.js';
import {reasonOf} from '../lib/rows.js';
import {may} from '../lib/rights.js';
import {Menu, StateIcon, Time, copyText} from './basics.js';
import {ActionButton, act, copyItems} from './actions.js';
import {Icon} from './icons.js';

const SHOWN = 6;
/** The commands for decisions that a person makes in a shell, where the whole text is visible. */
const TYPED = {trust: name => `wakeful trust ${name}`, conflict: name => `wakeful show ${name}`};

export function Needs() {
  const found = store.needs.value;
  if (!found.length) return null;
  return html`<section class="needs" aria-label="needs you">
    <h2>Needs you <span class="muted">${found.length}</span></h2>
    <div class="needs-cards">${found.slice(0, SHOWN).map(({row, need}) => html`<${Need} key=${row.id} row=${row} need=${need} />`)}</div>
    ${found.length > SHOWN && html`<button class="button small" onClick=${() => setQuery({filter: 'needs'})}>Show all ${found.length}</button>`}
  </section>`;
}

function Need({row, need}) {
  return html`<article class=${`need need-${need}`}>
    <header class="row"><${StateIcon} state=${need} /><a class="cut plain" href=${link('session', row.name)}><strong>${row.name}</strong></a>
      <${Time} at=${row.last_run?.finished_at} class="push small muted" /></header>
    <p class="need-words">${reasonOf(row)}</p>
    ${need === 'asks' ? html`<${Answer} row=${row} />` : html`<footer class="row wrap">
      <${ActionButton} verb="activate" body=${{name: row.name}} label="Run again" small />
      <a class="button small" href=${link('session', row.name, {tab: 'output'})}>Output</a>
      <a class="button small" href=${link('why', '', {x: row.name})}>Why</a></footer>`}
  </article>`;
}

/** `isHere`: shown on the page of the session itself. This page needs no link to itself, and has space for a reason. */
export function Answer({row, isHere = false}) {
  const [text, setText] = useState('');
  const [why, setWhy] = useState('');
  const because = why.trim() ? {rationale: why.trim()} : {};
  const isApproval = ['approval', 'permission'].includes(row.needs?.kind);
  const answer = words => act({verb: 'answer', body: {name: row.name, text: words}, done: () => setText('')});
  const submit = event => { event.preventDefault(); if (text.trim()) answer(text.trim()); };
  if (['trust', 'conflict'].includes(row.needs?.kind)) {
    return html`<footer class="row wrap"><a class="button small" href=${link('session', row.name)}>Look</a>
      <button class="button small" onClick=${() => copyText(TYPED[row.needs.kind](row.name), 'the command')}><${Icon} name="command" />Copy the command</button></footer>`;
  }
  if (!may('answer', row.name)) return html`<p class="small muted">Only a contributor of the session can answer this.</p>`;
  if (isApproval) {
    return html`<footer class="row wrap">
      ${isHere && html`<input class="input" aria-label="reason, for the log" placeholder="Reason, for the log" value=${why} onInput=${event => setWhy(event.target.value)} />`}
      <${ActionButton} verb="answer" body=${{name: row.name, text: 'yes', ...because}} label=${row.needs.kind === 'approval' ? 'Yes, run' : 'Allow'} primary small />
      <${ActionButton} verb="answer" body=${{name: row.name, text: 'no', ...because}} label="No" small />
      ${!isHere && html`<a class="button small" href=${link('session', row.name)}>Look first</a>`}</footer>`;
  }
  return html`<form class="row" onSubmit=${submit}>
    <input class="input" aria-label=${`answer ${row.name}`} placeholder="Your answer" value=${text} onInput=${event => setText(event.target.value)} />
    <button class="button primary small" disabled=${!text.trim()}>Answer</button>
    <${Menu} label="Answer: copy" items=${copyItems('answer', {name: row.name, text: text || 'TEXT'})} />
  </form>`;
}
