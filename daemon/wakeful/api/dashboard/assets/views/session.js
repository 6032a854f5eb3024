/** Session: its state now or at any record, with conversation, output, log, files and facts. */
import {html, useCallback, useEffect, useLayoutEffect, useState} from '../lib/ui.js';
import {at as address, get, post, query} from '../lib/api.js';
import * as store from '../lib/store.js';
import {go, link, route, setQuery} from '../lib/router.js';
import {bindKeys} from '../lib/keys.js';
import {useLoad, useReloadOn} from '../lib/load.js';
import {may} from '../lib/rights.js';
import {reasonOf, shownState} from '../lib/rows.js';
import {Empty, Failure, Loading, Menu, State} from '../parts/basics.js';
import {ActionButton, act, copyItems} from '../parts/actions.js';
import {Faces} from '../parts/people.js';
import {Icon} from '../parts/icons.js';
import {Aside} from '../session/aside.js';
import {Conversation} from '../session/conversation.js';
import {Compose} from '../session/compose.js';
import {Output} from '../session/output.js';
import {Question} from '../session/question.js';
import {Records} from '../session/records.js';
import {Compare} from '../session/compare.js';
import {Scrubber} from '../session/scrubber.js';

const TABS = [['activity', 'Activity'], ['output', 'Output'], ['log', 'Log'], ['compare', 'Compare']];

export function Session() {
  const {name, query: asked} = route.value;
  const position = asked.at ? Number(asked.at) : null;
  const tab = asked.tab ?? 'activity';
  const row = store.findRow(name);
  const load = useCallback(signal => get(address(name, query({at: position})), {signal}), [name, position]);
  const {data, error, reload} = useLoad(load, [name, position]);
  useReloadOn(record => position === null && record.session === name, reload, 300);
  const [latest, setLatest] = useState(null);
  useEffect(() => { if (data && position === null) setLatest(data); }, [data, position]);
  usePresence(name);
  useLayoutEffect(() => bindKeys({
    c: () => document.querySelector('[data-compose]')?.focus(),
    '[': () => stepTo(name, position, -1), ']': () => stepTo(name, position, 1),
    Escape: () => (position === null ? go('now') : setQuery({at: undefined})),
  }), [name, position]);

  if (error?.status === 404 && !data) return html`<${Unknown} name=${name} />`;
  if (error && !data) return html`<div class="head"><h1>${name}</h1></div><div class="pad"><${Failure} error=${error} retry=${reload} /></div>`;
  const shown = data ?? latest;
  if (!shown) return html`<div class="head"><h1>${name}</h1></div><${Loading} lines="8" />`;
  const whole = {...(latest ?? {}), ...shown};
  const seq = row?.seq ?? latest?.seq ?? shown.seq;
  return html`
    <${Head} session=${whole} row=${row} isPast=${position !== null} />
    <${Scrubber} name=${name} seq=${seq} at=${position} session=${whole} />
    <div class="session">
      <section class="session-main">
        <div class="tabs" role="tablist">
          ${TABS.map(([key, label]) => html`<button role="tab" id=${`tab-${key}`} aria-selected=${key === tab} aria-controls="tab-panel" onClick=${() => setQuery({tab: key === 'activity' ? undefined : key})}>${label}</button>`)}
          <button role="tab" class="only-phone" id="tab-about" aria-controls="tab-panel" aria-selected=${tab === 'about'} onClick=${() => setQuery({tab: 'about'})}>About</button>
        </div>
        <div class="panel" id="tab-panel" role="tabpanel" aria-labelledby=${`tab-${tab}`}>
          ${tab === 'output' ? html`<${Output} name=${name} session=${whole} row=${row} />`
          : tab === 'log' ? html`<${Records} name=${name} at=${position} />`
          : tab === 'compare' ? html`<${Compare} name=${name} at=${position} session=${whole} />`
          : tab === 'about' ? html`<div class="scroll" tabindex="0"><${Aside} session=${whole} isPast=${position !== null} /></div>`
          : html`<${Conversation} name=${name} at=${position} />`}
        </div>
        ${tab === 'activity' && position === null && html`<${Compose} session=${whole} row=${row} />`}
      </section>
      <aside class="session-side scroll only-wide" tabindex="0" aria-label="about the session"><${Aside} session=${whole} isPast=${position !== null} /></aside>
    </div>`;
}

function Unknown({name}) {
  return html`<div class="head"><h1>${name}</h1></div><${Empty} title="No session has this name" icon="search">
    <p>It may have been renamed, or its file was removed.</p><a class="button" href=${link('now')}>All sessions</a><//>`;
}

function stepTo(name, position, step) {
  const seq = store.findRow(name)?.seq ?? 1;
  const next = Math.max(1, (position ?? seq) + step);
  setQuery({at: next >= seq ? undefined : next}, {replace: true});
}

const PRESENCE_MS = 45_000;

/** Report the person as present while the tab is visible. The daemon forgets a report after a minute. */
function usePresence(name) {
  useEffect(() => {
    let timer = 0;
    const tell = () => {
      clearTimeout(timer);
      if (document.visibilityState !== 'visible') return;
      post('/presence', {name}).then(found => {
        store.takePresenceOf(name, found);
        timer = setTimeout(tell, PRESENCE_MS);
      }, () => {});
    };
    document.addEventListener('visibilitychange', tell);
    tell();
    return () => { clearTimeout(timer); document.removeEventListener('visibilitychange', tell); };
  }, [name]);
}

function Head({session, row, isPast}) {
  const state = isPast || !row ? session.state : shownState(row);
  const slash = session.name.lastIndexOf('/');
  return html`<header class="session-head">
    <div class="row wrap">
      <a class="icon-button back" href=${link('now')} aria-label="back to all sessions"><${Icon} name="chevron" class="left" /></a>
      <h1 class="cut">${slash > 0 && html`<span class="muted">${session.name.slice(0, slash + 1)}</span>`}${session.name.slice(slash + 1)}</h1>
      <${State} state=${state} />
      <${Faces} session=${session.name} />
      <span class="push row wrap">${!isPast && row && html`<${Actions} session=${session} row=${row} />`}</span>
    </div>
    <p class="quiet objective">${session.objective}</p>
    ${!isPast && row && html`<p class="session-reason small"><span class="muted">${reasonOf(row)}</span> <a class="plain accent" href=${link('why', '', {x: session.name})}>Why?</a></p>`}
    ${!isPast && row?.needs && row.needs.kind !== 'decision' && html`<${Question} row=${row} />`}
    ${session.problem && html`<${Failure} error=${{title: 'Its file has errors; the last valid version counts', message: session.problem}} />`}
  </header>`;
}

function Actions({session, row}) {
  const body = {name: session.name};
  const isRunning = row.state === 'running';
  const isGone = row.state === 'terminated';
  if (isGone) return html`<${ActionButton} verb="open" body=${{...body, again: true}} />`;
  const more = [
    isRunning && {verb: 'cancel', icon: 'close'},
    row.state === 'sleeping' || isRunning ? null : {verb: 'sleep', icon: 'sleeping'},
    {verb: 'save', icon: 'file'}, {verb: 'fork', icon: 'fork'}, {verb: 'rename', icon: 'file'}, {verb: 'terminate', icon: 'stopped'},
  ].filter(one => one && may(one.verb, session.name));
  return html`
    ${isRunning ? html`<${ActionButton} verb="interrupt" body=${body} />`
    : row.state === 'sleeping' ? html`<${ActionButton} verb="resume" body=${body} />` : null}
    ${!isRunning && html`<${ActionButton} verb="activate" body=${body} icon="play" primary />`}
    <${Menu} label="More actions" items=${[
      ...more.map(({verb, icon}) => ({label: LABELS[verb], icon, danger: verb === 'terminate' || verb === 'cancel', run: () => act({verb, body, done: answer => verb === 'rename' && go('session', answer.name ?? session.name)})})),
      ...(more.length ? [null] : []),
      {label: 'Show it in the graph', icon: 'graph', run: () => go('graph', session.name)},
      {label: 'Show it on the timeline', icon: 'timeline', run: () => go('timeline', '', {name: session.name})},
      null,
      ...copyItems('show', body).slice(0, 1),
    ]} />`;
}

const LABELS = {cancel: 'Cancel the run…', sleep: 'Sleep…', save: 'Mark a checkpoint…', fork: 'Fork…', rename: 'Rename…', terminate: 'Terminate…'};
