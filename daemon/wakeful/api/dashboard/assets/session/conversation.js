/** The conversation: messages, answers, tool calls, the start and end of runs, and text while an agent writes it. */
import {html, names, useCallback, useEffect, useMemo, useRef, useState} from '../lib/ui.js';
import {at as address, getLines, query} from '../lib/api.js';
import {onRecords, words} from '../lib/store.js';
import {link} from '../lib/router.js';
import {ASKED_BY, causeWords, nameAuthors} from '../lib/rows.js';
import {duration, money} from '../lib/times.js';
import {Empty, Failure, Loading, StateIcon, Time, say} from '../parts/basics.js';
import {Icon} from '../parts/icons.js';
import {MeasuredList} from '../parts/measured.js';
import {Prose} from '../parts/text.js';

const PAGE = 200;
/** The most records on the page. When newer records come, the oldest are dropped here. The log still has them. */
const MOST_KEPT = 10_000;
const KINDS = [
  'message_added', 'message_sent', 'note_added', 'fact_set', 'fact_retracted', 'run_started', 'run_finished', 'turn_answered', 'turn_failed', 'tool_called',
  'tool_returned', 'question_asked', 'question_answered', 'work_halted', 'session_slept', 'session_resumed', 'session_rewound', 'session_forked',
  'session_merged', 'checkpoint_marked', 'activation_requested', 'conversation_compressed', 'session_terminated', 'session_reopened', 'session_migrated',
  'todo_set', 'slot_skipped', 'wake_withdrawn',
];

export function Conversation({name, at}) {
  const {records, error, isWhole, loadEarlier, reload} = useConversation(name, at);
  const live = at === null ? words.value.get(name) : null;
  const told = useMemo(() => (records ? arrange(records) : []), [records]);
  const items = useMemo(() => (live ? [...told, {seq: 'live', kind: 'live', live}] : told), [told, live]);
  // The seqs of the tool calls that the person unfolded. A call that is scrolled away is not drawn. When it is drawn
  // again, it is still unfolded.
  const unfolded = useRef(new Set()).current;
  const draw = useCallback(item => (item.live ? html`<${LiveWords} live=${item.live} />` : html`<${Item} item=${item} name=${name} unfolded=${unfolded} />`), [name]);
  if (error) return html`<div class="pad"><${Failure} error=${error} retry=${reload} /></div>`;
  if (!records) return html`<${Loading} lines="6" />`;
  if (!items.length && isWhole) return html`<${Empty} title="No messages yet" icon="message"><p>Messages, answers, tool calls and runs appear here as they happen.</p><//>`;
  return html`<div class="scroll conversation" tabindex="0" aria-label="conversation">
    ${!isWhole && html`<div class="earlier"><button class="button small" onClick=${() => loadEarlier({isAsked: true})}>Earlier</button></div>`}
    <${MeasuredList} items=${items} estimate=${estimate} keyOf=${item => item.seq} draw=${draw} label="messages, answers and tool calls" onStart=${isWhole ? undefined : loadEarlier} />
  </div>`;
}

const LINE_PX = 20;
const HEIGHTS = {run_started: 40, run_finished: 28, tool_called: 32};

/** Estimate the height of an item before it is drawn. A bubble has a head, and a line for each 80 characters or so. */
function estimate({kind, said}) {
  const text = said?.text ?? said?.answer?.text;
  if (text === undefined || kind === 'tool_called') return HEIGHTS[kind] ?? 28;
  return 46 + LINE_PX * Math.min(60, text.split('\n').reduce((sum, line) => sum + 1 + Math.floor(line.length / 80), 0));
}

function useConversation(name, at) {
  const [state, setState] = useState({records: null, error: null, isWhole: false});
  const [turn, setTurn] = useState(0);
  const earlier = useRef(() => {});
  useEffect(() => {
    const stop = new AbortController();
    let last = 0;
    let isBusy = false, isAsked = false;
    setState({records: null, error: null, isWhole: false});
    const read = values => getLines(address(name, `/log${query({kind: KINDS, words: true, ...values})}`), {signal: stop.signal});
    const fail = error => error.name !== 'AbortError' && setState(old => ({...old, error}));
    const begin = read({to: at, last: PAGE}).then(records => {
      last = records.at(-1)?.seq ?? 0;
      setState({records, error: null, isWhole: records.length < PAGE});
    }, fail);
    // Send one request at a time. Records that arrive meanwhile are requested after that.
    const more = async () => {
      if (isBusy) { isAsked = true; return; }
      isBusy = true;
      await begin;
      await read({from: last + 1}).then(found => {
        if (!found.length) return;
        last = found.at(-1).seq;
        setState(old => {
          const records = [...(old.records ?? []), ...found];
          return records.length <= MOST_KEPT ? {...old, records} : {...old, records: records.slice(-MOST_KEPT), isWhole: false};
        });
      }, fail);
      isBusy = false;
      if (isAsked) { isAsked = false; more(); }
    };
    const end = at === null ? onRecords((found, isSnapshot) => (isSnapshot || found.some(one => one.session === name)) && more()) : () => {};
    let isLoading = false, hasFailed = false;
    earlier.current = async (first, isAsked) => {
      // After a failure, the page does not try again by itself. The person must click.
      if (isLoading || (hasFailed && !isAsked)) return;
      isLoading = true;
      try {
        const found = first > 1 ? await read({to: first - 1, last: PAGE}) : [];
        setState(old => (old.records[0]?.seq === first ? {...old, records: [...found, ...old.records], isWhole: found.length < PAGE} : old));
      } catch (problem) {
        hasFailed = true;
        if (problem.name !== 'AbortError') say({words: problem.message, isBad: true});
      }
      isLoading = false;
    };
    return () => { stop.abort(); end(); };
  }, [name, at, turn]);
  const first = state.records?.[0]?.seq ?? 1;
  const loadEarlier = useCallback(({isAsked = false} = {}) => earlier.current(first, isAsked), [first]);
  return {...state, loadEarlier, reload: () => setTurn(turn + 1)};
}

/** Join a call and its result to one item. Leave out answers without text, and records that repeat another record. */
function arrange(records) {
  const calls = new Map();
  const remembered = new Set();
  const items = [];
  for (const record of records) {
    const said = record.payload;
    if (record.kind === 'tool_returned' && calls.has(said?.call)) {
      calls.get(said.call).result = said;
      continue;
    }
    if (record.kind === 'turn_answered' && !said?.answer?.text) continue;
    // The message itself shows who asked.
    if (record.kind === 'activation_requested' && ASKED_BY.test(said?.note ?? '')) continue;
    // The tool call `remember` already shows the fact.
    if (record.kind === 'fact_set' && remembered.delete(`${record.author} ${said?.key}`)) continue;
    // The last answer of an agent is also its hand-off, so it is shown once.
    const last = items.at(-1);
    if (record.kind === 'note_added' && last?.kind === 'turn_answered' && said?.text.trim() === last.said.answer.text.trim()) {
      last.isHandoff = true;
      continue;
    }
    const item = {...record, said};
    if (record.kind === 'tool_called' && said) {
      calls.set(said.call.id, item);
      if (said.call.name === 'remember') remembered.add(`${record.author} ${readArguments(said.call.arguments).key}`);
    }
    items.push(item);
  }
  return items;
}

function Item({item, name, unfolded}) {
  const {said} = item;
  if (!said) return html`<${Quiet} item=${item} name=${name} />`;
  switch (item.kind) {
    case 'message_added': return html`<${Bubble} item=${item} who=${said.sender} icon="person" to=${said.agent} name=${name} isOurs><${Prose} text=${said.text} /><//>`;
    case 'turn_answered': return html`<${Bubble} item=${item} who=${said.answer.model?.split(':').pop() ?? 'agent'} icon="agent" meta=${money(said.usd)} chip=${item.isHandoff && 'hand-off'} name=${name}><${Prose} text=${said.answer.text} /><//>`;
    case 'question_asked': return html`<${Bubble} item=${item} who=${item.author} icon="asks" tone="asks" name=${name}><${Prose} text=${said.text} /><//>`;
    case 'question_answered': return html`<${Bubble} item=${item} who=${item.author} icon="person" name=${name} isOurs><${Prose} text=${said.rationale ? `${said.text}, because ${said.rationale}` : said.text} /><//>`;
    case 'wake_withdrawn': return said.rationale ? html`<${Bubble} item=${item} who=${item.author} icon="person" name=${name} isOurs><${Prose} text=${`no, because ${said.rationale}`} /><//>` : html`<${Quiet} item=${item} name=${name} />`;
    case 'note_added': return html`<${Bubble} item=${item} who=${`${nameAuthors(item.author, name)} left a hand-off`} icon="file" tone="note" name=${name}><${Prose} text=${said.text} /><//>`;
    case 'tool_called': return html`<${ToolCall} item=${item} unfolded=${unfolded} />`;
    case 'run_started': return html`<div class="run-start"><a href=${link('why', '', {x: `${name}#${item.run}`})}>run ${item.run}</a><span>${causeWords(said.causes)}</span>${said.agent && html`<span class="chip"><${Icon} name="agent" />${said.agent.name}</span>`}<${Time} at=${item.at} class="push" /></div>`;
    case 'run_finished': return html`<div class="run-end"><${StateIcon} state=${said.outcome} /><span>run ${said.run} ${said.outcome}${said.reason && said.outcome !== 'succeeded' ? `: ${said.reason}` : ''}</span>
      <span class="muted">${duration(said.usage?.wall_seconds)}</span>${said.usage?.usd ? html`<span class="muted">${money(said.usage.usd)}</span>` : null}
      ${Object.keys(said.written ?? {}).length > 0 && html`<span class="muted">wrote ${Object.keys(said.written).join(', ')}</span>`}<a class="plain accent small" href=${link('session', name, {tab: 'output', run: said.run})}>output</a></div>`;
    default: return html`<${Quiet} item=${item} name=${name} />`;
  }
}

function Bubble({item, who, icon, to, meta, chip, tone, isOurs, name, children}) {
  return html`<article class=${names('bubble', isOurs && 'ours', tone && `bubble-${tone}`)}>
    <header><${Icon} name=${icon} class=${icon === 'asks' ? 'is-asks' : ''} /><strong>${(who ?? '').replace(/^person:/, '')}</strong>
      ${to && html`<span class="muted">to</span><span class="chip"><${Icon} name="agent" />${to}</span>`}
      ${meta && html`<span class="muted">${meta}</span>`}${chip && html`<span class="chip">${chip}</span>`}<a class="push plain muted" href=${link('session', name, {at: item.seq})}><${Time} at=${item.at} /></a></header>
    ${children}
  </article>`;
}

function ToolCall({item, unfolded}) {
  const {call} = item.said;
  const result = item.result;
  const note = event => (event.currentTarget.open ? unfolded.add(item.seq) : unfolded.delete(item.seq));
  return html`<details class="tool" open=${unfolded.has(item.seq)} onToggle=${note}>
    <summary><${Icon} name=${result?.is_error ? 'failed' : 'chevron'} class=${result?.is_error ? 'is-failed' : 'turner'} /><code>${call.name}</code><span class="cut muted">${sayArguments(call.arguments)}</span>
      <span class="push muted small">${result ? '' : 'under way'}</span></summary>
    <pre class="block">${pretty(call.arguments)}</pre>
    ${result && html`<${Prose} text=${'```\n' + (result.text || 'no text') + '```'} />`}
  </details>`;
}

/** Parse the arguments of a call. Empty if the agent did not write JSON. */
function readArguments(text) {
  try { return Object(JSON.parse(text)); } catch { return {}; }
}

function sayArguments(text) {
  const said = Object.entries(readArguments(text)).map(([key, value]) => `${key}: ${typeof value === 'string' ? value : JSON.stringify(value)}`);
  return (said.length ? said.join(', ') : text).slice(0, 200);
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2).slice(0, 20_000); } catch { return text.slice(0, 20_000); }
}

function Quiet({item, name}) {
  const who = item.author !== 'wakeful' && !item.words.includes(item.author) ? `${nameAuthors(item.author, name)}: ` : '';
  return html`<div class="quiet-line"><span class="cut">${who}${nameAuthors(item.words, name)}</span><a class="push plain" href=${link('session', name, {at: item.seq})}><${Time} at=${item.at} /></a></div>`;
}

function LiveWords({live}) {
  return html`<article class="bubble live" aria-live="polite"><header><${Icon} name="running" class="is-running" /><strong>answers now</strong></header>
    ${live.pieces.map(piece => (piece.kind === 'text' ? html`<${Prose} text=${piece.text} longest=${20_000} />` : html`<p class="muted small">${piece.kind === 'thinking' ? piece.text.slice(-600) : `${piece.kind}: ${piece.text}`}</p>`))}
  </article>`;
}
