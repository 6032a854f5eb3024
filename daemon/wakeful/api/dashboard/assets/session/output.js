/** The output of a run, live while it runs. Colours are kept, other escapes are dropped, and long lines are cut. */
import {html, useCallback, useEffect, useRef, useState} from '../lib/ui.js';
import {at as address, query, request} from '../lib/api.js';
import {route, setQuery} from '../lib/router.js';
import {asCurlGet, quote} from '../lib/commands.js';
import {useLoad} from '../lib/load.js';
import {bytes, count} from '../lib/times.js';
import Anser from '../vendor/anser.js';
import {Empty, Failure, Loading, Menu, copyText} from '../parts/basics.js';
import {Icon} from '../parts/icons.js';
import {VirtualList} from '../parts/virtual.js';

const LINE = 20;
const LONGEST_LINE = 2000;
const MOST_LINES = 20_000;
const DRAW_MS = 150;
/** The pause in typing after which the daemon searches, and the time between two searches of a run under way. */
const TYPING_MS = 250;
const AGAIN_MS = 1000;

export function Output({name, session, row}) {
  const running = row?.run?.run ?? null;
  const runs = (session.last_runs ?? []).map(one => one.run);
  const asked = route.value.query.run ? Number(route.value.query.run) : null;
  const run = asked ?? running ?? session.last_run?.run ?? null;
  const [find, setFind] = useState('');
  const wanted = useDebounced(find.trim());
  const {lines, error: outputError, size, isLive} = useOutput(name, run, run === running);
  const {found, error: findError} = useFound(name, run, wanted, isLive, lines);
  const error = outputError ?? findError;
  const shown = wanted ? found?.lines : lines;
  const clear = event => { if (event.key === 'Escape' && find) { event.preventDefault(); setFind(''); } };
  const path = address(name, `/output${query({run})}`);
  if (run === null) return html`<${Empty} title="It has not run yet" icon="command"><p>The output of a run appears here while it runs.</p><//>`;
  return html`<div class="tool-bar row wrap">
      <label class="row small"><span class="muted">Run</span><select class="select" value=${String(run)} onChange=${event => setQuery({run: event.target.value})}>
        ${[...new Set([run, ...runs])].map(one => html`<option value=${String(one)}>${one}${one === running ? ' (under way)' : ''}</option>`)}</select></label>
      <label class="search"><${Icon} name="search" /><span class="hidden-words">Find in the output</span><input class="input" type="search" placeholder="Find" value=${find} onInput=${event => setFind(event.target.value)} onKeyDown=${clear} /></label>
      <span class="small muted" role="status">${shown && (wanted ? sayFound(found) : `${count(shown.length, 'line')}, ${bytes(size)}`)}${isLive ? ' · live' : ''}</span>
      <span class="push row"><button class="button small" onClick=${() => download(path, `${name.replaceAll('/', '-')}-run${run}.log`)}><${Icon} name="download" />Download</button>
      <${Menu} label="Output: copy" items=${[
        {label: 'Copy as command', icon: 'command', run: () => copyText(`wakeful output ${quote(name)} --run ${run}${wanted ? ` --find ${quote(wanted)}` : ''}`, 'the command')},
        {label: 'Copy as curl', icon: 'copy', run: () => copyText(asCurlGet(wanted ? findPath(name, run, wanted) : path), 'the curl line')},
      ]} /></span>
    </div>
    ${error ? html`<div class="pad"><${Failure} error=${error} /></div>` : !shown ? html`<${Loading} />`
    : !shown.length ? html`<${Empty} title=${wanted ? 'No line contains that' : 'No output'} icon="command" />`
    : html`<div class="scroll terminal" tabindex="0" aria-label=${`output of run ${run}`}><${VirtualList} items=${shown} height=${lineHeight} keyOf=${one => one.number} follow=${isLive && !wanted} draw=${one => html`<${TerminalLine} line=${one} />`} /></div>`}`;
}

const lineHeight = () => LINE;

const findPath = (name, run, find) => address(name, `/output${query({run, find})}`);
const sayFound = ({lines, all}) => (all > lines.length ? `the first ${lines.length.toLocaleString()} of ${count(all, 'line')}` : count(all, 'line'));

function useDebounced(text) {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), TYPING_MS);
    return () => clearTimeout(timer);
  }, [text]);
  // When the field is cleared, the whole output is shown at once.
  return text && settled;
}

/** Find the lines that contain a text. The daemon searches, because this page has only the end of the output. */
function useFound(name, run, find, isLive, lines) {
  const keys = [name, run, find, isLive];
  const load = useCallback(signal => (find && run !== null ? searchOutput(name, run, find, signal) : Promise.resolve(null)), keys);
  const {data, error, reload} = useLoad(load, keys);
  const again = useRef(0);
  useEffect(() => {
    if (find && isLive) again.current ||= setTimeout(() => { again.current = 0; reload(); }, AGAIN_MS);
  }, [lines]);
  useEffect(() => () => clearTimeout(again.current), []);
  return {found: data, error};
}

async function searchOutput(name, run, find, signal) {
  const answer = await request('GET', findPath(name, run, find), {signal});
  const lines = (await answer.text()).split('\n').slice(0, -1).map(line => {
    const colon = line.indexOf(':');
    return cutLine(Number(line.slice(0, colon)), line.slice(colon + 1));
  });
  return {lines, all: Number(answer.headers.get('Wakeful-Found'))};
}

/** Save an answer as a file. A plain link could not send the token. */
export async function download(path, name) {
  const blob = await (await request('GET', path)).blob();
  const place = URL.createObjectURL(blob);
  const anchor = Object.assign(document.createElement('a'), {href: place, download: name});
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(place), 10_000);
}

function TerminalLine({line}) {
  const parts = Anser.ansiToJson(line.text, {remove_empty: true, use_classes: true});
  return html`<div class="terminal-line"><span class="line-number" aria-hidden="true">${line.number}</span>${parts.map(part => html`<span class=${classOf(part)}>${part.content}</span>`)}${line.isCut && html`<em class="muted"> … cut</em>`}</div>`;
}

function classOf({fg, bg, decorations = []}) {
  return [fg && /^ansi-[\w-]+$/.test(fg) && fg, bg && /^ansi-[\w-]+$/.test(bg) && `${bg}-ground`, ...decorations.map(word => `ansi-${word}`)].filter(Boolean).join(' ');
}

function useOutput(name, run, isLive) {
  const [state, setState] = useState({lines: null, error: null, size: 0});
  useEffect(() => {
    if (run === null) return undefined;
    const stop = new AbortController();
    setState({lines: null, error: null, size: 0});
    readOutput(name, run, isLive, stop.signal, setState).catch(error => error.name !== 'AbortError' && setState(old => ({...old, error})));
    return () => stop.abort();
  }, [name, run, isLive]);
  return {...state, isLive};
}

/** Insert a line for the part of a stored output that was not kept. A stream already has such a line. */
async function insertGap(answer) {
  const whole = await answer.blob();
  const [head, total] = ['Wakeful-Head', 'Wakeful-Total'].map(name => Number(answer.headers.get(name)));
  if (total <= whole.size) return whole.stream();
  return new Blob([whole.slice(0, head), `\n[not kept: ${count(total - whole.size, 'byte')}]\n`, whole.slice(head)]).stream();
}

/** Cut a long line. After a carriage return, as in a progress bar, only the text drawn last is shown. */
function cutLine(number, text) {
  const drawn = text.replace(/\r$/, '').split('\r').pop();
  return {number, text: drawn.slice(0, LONGEST_LINE), isCut: drawn.length > LONGEST_LINE};
}

async function readOutput(name, run, isLive, signal, setState) {
  const answer = await request('GET', address(name, `/output${query(isLive ? {follow: true} : {run})}`), {signal});
  const reader = (isLive ? answer.body : await insertGap(answer)).pipeThrough(new TextDecoderStream()).getReader();
  const lines = [];
  let rest = '', size = 0, number = 0, timer = 0;
  const add = text => {
    number += 1;
    lines.push(cutLine(number, text));
    if (lines.length > MOST_LINES) lines.splice(0, 1000);
  };
  const draw = () => { timer = 0; if (!signal.aborted) setState({lines: lines.slice(), error: null, size}); };
  for (;;) {
    const {done, value} = await reader.read();
    if (done) break;
    size += value.length;
    const parts = (rest + value).split('\n');
    rest = parts.pop();
    parts.forEach(add);
    timer ||= setTimeout(draw, DRAW_MS);
  }
  if (rest) add(rest);
  clearTimeout(timer);
  draw();
}
