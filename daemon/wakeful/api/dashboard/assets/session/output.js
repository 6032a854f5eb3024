/** What a run wrote to its terminal, live while it runs. Colours are kept, every other escape is dropped, lines are capped. */
import {html, useEffect, useMemo, useState} from '../lib/ui.js';
import {at as address, query, request} from '../lib/api.js';
import {route, setQuery} from '../lib/router.js';
import {asCurlGet} from '../lib/commands.js';
import {bytes, count} from '../lib/times.js';
import Anser from '../vendor/anser.js';
import {Empty, Failure, Loading, Menu, copyText} from '../parts/basics.js';
import {Icon} from '../parts/icons.js';
import {VirtualList} from '../parts/virtual.js';

const LINE = 20;
const LONGEST_LINE = 2000;
const MOST_LINES = 20_000;
const DRAW_MS = 150;

export function Output({name, session, row}) {
  const running = row?.run?.run ?? null;
  const runs = (session.last_runs ?? []).map(one => one.run);
  const asked = route.value.query.run ? Number(route.value.query.run) : null;
  const run = asked ?? running ?? session.last_run?.run ?? null;
  const [find, setFind] = useState('');
  const {lines, error, size, isLive} = useOutput(name, run, run === running);
  const shown = useMemo(() => (find ? lines?.filter(one => one.text.toLowerCase().includes(find.toLowerCase())) : lines), [lines, find]);
  const path = address(name, `/output${query({run})}`);
  if (run === null) return html`<${Empty} title="It has not run yet" icon="command"><p>What a run prints appears here while it runs.</p><//>`;
  return html`<div class="tool-bar row wrap">
      <label class="row small"><span class="muted">Run</span><select class="select" value=${String(run)} onChange=${event => setQuery({run: event.target.value})}>
        ${[...new Set([run, ...runs])].map(one => html`<option value=${String(one)}>${one}${one === running ? ' (under way)' : ''}</option>`)}</select></label>
      <label class="search"><${Icon} name="search" /><span class="hidden-words">Find in the output</span><input class="input" type="search" placeholder="Find" value=${find} onInput=${event => setFind(event.target.value)} /></label>
      <span class="small muted">${lines && `${count(shown.length, 'line')}, ${bytes(size)}`}${isLive ? ' · live' : ''}</span>
      <span class="push row"><button class="button small" onClick=${() => download(path, `${name.replaceAll('/', '-')}-run${run}.log`)}><${Icon} name="download" />Download</button>
      <${Menu} label="Output: copy" items=${[
        {label: 'Copy as command', icon: 'command', run: () => copyText(`wakeful output ${name} --run ${run}`, 'the command')},
        {label: 'Copy as curl', icon: 'copy', run: () => copyText(asCurlGet(path), 'the curl line')},
      ]} /></span>
    </div>
    ${error ? html`<div class="pad"><${Failure} error=${error} /></div>` : !lines ? html`<${Loading} />`
    : !shown.length ? html`<${Empty} title=${find ? 'No line says that' : 'It printed nothing'} icon="command" />`
    : html`<div class="scroll terminal" tabindex="0" aria-label=${`output of run ${run}`}><${VirtualList} items=${shown} height=${lineHeight} keyOf=${one => one.number} follow=${isLive && !find} draw=${one => html`<${TerminalLine} line=${one} />`} /></div>`}`;
}

const lineHeight = () => LINE;

/** Save an answer as a file: a plain link could not send the token. */
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

async function readOutput(name, run, isLive, signal, setState) {
  const answer = await request('GET', address(name, `/output${query(isLive ? {follow: true} : {run})}`), {signal});
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const lines = [];
  let rest = '', size = 0, number = 0, timer = 0;
  const add = text => {
    number += 1;
    // A carriage return draws over the line, as a progress bar does: what was drawn last counts.
    const drawn = text.replace(/\r$/, '').split('\r').pop();
    lines.push({number, text: drawn.slice(0, LONGEST_LINE), isCut: drawn.length > LONGEST_LINE});
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
