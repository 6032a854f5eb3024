/** The frame of the page: login, navigation, keyboard, and the view that the address names. */
import {html, render, signal, useEffect, useLayoutEffect, useState} from './lib/ui.js';
import {dropToken, person, token} from './lib/api.js';
import {logIn, logInWithToken, logOut} from './lib/login.js';
import {startLive} from './lib/live.js';
import {startFigures} from './lib/figures.js';
import * as store from './lib/store.js';
import {go, link, page, route} from './lib/router.js';
import {HELP, bindKeys, isHelpOpen} from './lib/keys.js';
import {relative, now} from './lib/times.js';
import {Dialog, StateIcon, Toasts} from './parts/basics.js';
import {ActionDialog} from './parts/actions.js';
import {Faces} from './parts/people.js';
import {Icon} from './parts/icons.js';
import {Now} from './views/now.js';
import {Session} from './views/session.js';
import {Why} from './views/why.js';
import {Timeline} from './views/timeline.js';
import {Health} from './views/health.js';
import {Graph} from './views/graph.js';

const NAVIGATION = [
  ['now', 'Now', 'g n'], ['graph', 'Graph', 'g g'], ['timeline', 'Timeline', 'g t'], ['why', 'Why', 'g w'], ['health', 'Health', 'g h'],
];
const VIEWS = {now: Now, graph: Graph, timeline: Timeline, session: Session, why: Why, health: Health};
/** The reason why this tab is not logged in, or null if it is. */
const shut = signal(null);

function Navigation({isBottom}) {
  const current = route.value.view === 'session' ? 'now' : route.value.view;
  const count = store.needs.value.length;
  return html`<nav class=${isBottom ? 'bottom' : 'nav'} aria-label="views">
    ${NAVIGATION.map(([view, label, keys]) => html`<a href=${link(view)} aria-current=${view === current ? 'page' : undefined}>
      <${Icon} name=${view} />${label}
      ${view === 'now' && count > 0 ? html`<span class="badge" title=${`${count} need you`}>${count}</span>` : !isBottom && html`<span class="hint" aria-hidden="true">${keys}</span>`}
    </a>`)}
  </nav>`;
}

function Recent() {
  const active = [...store.rows.value.values()].filter(row => row.state === 'running').slice(0, 8);
  if (!active.length) return null;
  return html`<section class="recent"><h3>Running</h3>
    ${active.map(row => html`<a key=${row.id} href=${link('session', row.name)}><${StateIcon} state="running" /><span class="cut">${row.name}</span></a>`)}
  </section>`;
}

const LINK_WORDS = {on: 'live', wait: 'connecting', off: 'no connection', shut: 'signed out'};

function LinkState() {
  const {state, words} = store.link.value;
  return html`<span class="link" title=${words ?? ''}><span class=${`dot ${state}`}></span>${LINK_WORDS[state]}</span>`;
}

function Side() {
  return html`<aside class="side">
    <a class="brand" href=${link('now')}><img src="assets/icon.svg" alt="" />wakeful</a>
    <${Navigation} />
    <${Recent} />
    <footer>
      <${Faces} />
      <${LinkState} />
      <span>record ${(store.position.value ?? 0).toLocaleString()}</span>
      <span class="row">${person()}<button class="more push" onClick=${logOut}>Log out</button></span>
    </footer>
  </aside>`;
}

function Banner() {
  const {state, since, words} = store.link.value;
  if (state !== 'off' || !store.isLoaded.value) return null;
  return html`<div class="banner" role="status"><${Icon} name="failed" />
    <span><strong>Disconnected ${relative(since, now.value)}.</strong> The page shows the state at that time. ${words} It reconnects by itself; nothing is missed.</span></div>`;
}

function Help() {
  if (!isHelpOpen.value) return null;
  return html`<${Dialog} title="Keyboard" onClose=${() => { isHelpOpen.value = false; }}>
    <div class="dialog"><h2>Keyboard</h2>
      <div class="keys">${HELP.map(([keys, words]) => html`<span>${keys.split(/\s+/).map(key => html`<kbd>${key}</kbd> `)}</span><span>${words}</span>`)}</div>
    </div><//>`;
}

function SignedOut() {
  const [text, setText] = useState('');
  const submit = async event => {
    event.preventDefault();
    await logInWithToken(text.trim()).then(() => location.reload(), error => { shut.value = error.message; });
  };
  return html`<main class="signed-out scroll"><div class="empty">
    <img src="assets/icon.svg" alt="" width="40" height="40" /><h1>Open the dashboard from a shell</h1>
    <p role="status">${shut.value}</p><code>wakeful dashboard</code>
    <p class="small muted">It prints a link that works once, within five minutes.</p>
    <form class="token-form" onSubmit=${submit}><label class="field"><span>Or log in with a token that you were given</span>
      <input class="input" type="password" autocomplete="off" value=${text} onInput=${event => setText(event.target.value)} /></label>
      <button class="button" disabled=${!text.trim()}>Log in</button></form>
  </div></main>`;
}

function App() {
  useLayoutEffect(() => bindKeys({
    'g n': () => go('now'), 'g g': () => go('graph'), 'g t': () => go('timeline'), 'g w': () => go('why'), 'g h': () => go('health'),
    '?': () => { isHelpOpen.value = true; },
    '/': () => document.querySelector('[data-search]')?.focus(),
  }), []);
  const count = store.needs.value.length;
  const title = route.value.view === 'session' ? route.value.name : NAVIGATION.find(([view]) => view === route.value.view)?.[1];
  useEffect(() => { document.title = `${count ? `(${count}) ` : ''}${title} · wakeful`; }, [count, title]);
  if (shut.value !== null || store.link.value.state === 'shut') {
    shut.value ??= store.link.value.words;
    return html`<${SignedOut} />`;
  }
  const View = VIEWS[route.value.view];
  return html`<div class="shell">
    <${Side} />
    <main><${Banner} /><${View} key=${page.value} /></main>
    <${Navigation} isBottom />
    <${ActionDialog} /><${Help} /><${Toasts} />
  </div>`;
}

async function start() {
  try {
    await logIn();
    if (!token()) shut.value = 'This tab is not logged in yet.';
  } catch (error) {
    dropToken();
    shut.value = error.message;
  }
  if (shut.value === null) {
    startLive();
    startFigures();
  }
  const root = document.getElementById('app');
  root.textContent = '';
  render(html`<${App} />`, root);
}

// If a link with a code is pasted into an open tab, log that tab in again.
addEventListener('hashchange', () => { if (location.hash.startsWith('#code=')) location.reload(); });
start();
