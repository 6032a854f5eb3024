/** The log of a session. The daemon searches it. A click on a record shows the session at that position. */
import {html, names, useCallback, useState} from '../lib/ui.js';
import {at as address, getLines, query} from '../lib/api.js';
import {useLoad, useReloadOn} from '../lib/load.js';
import {setQuery} from '../lib/router.js';
import {asCurlGet} from '../lib/commands.js';
import {count, full, timeWithSeconds} from '../lib/times.js';
import {Dialog, Empty, Failure, Loading, Menu, copyText} from '../parts/basics.js';
import {Icon} from '../parts/icons.js';
import {VirtualList} from '../parts/virtual.js';
import {download} from './output.js';

const ROW = 32;
const LAST = 2000;

export function Records({name, at}) {
  const [text, setText] = useState('');
  const [asked, setAsked] = useState('');
  const [opened, setOpened] = useState(null);
  const path = address(name, `/log${query({words: true, last: LAST, text: asked, to: at})}`);
  const {data, error, reload} = useLoad(useCallback(signal => getLines(path, {signal}), [path]), [path]);
  useReloadOn(record => at === null && record.session === name, reload, 1000);
  const search = event => { event.preventDefault(); setAsked(text.trim()); };
  const items = data ? [...data].reverse() : null;
  return html`<div class="tool-bar row wrap">
      <form class="search" onSubmit=${search}><${Icon} name="search" /><input class="input" type="search" aria-label="search the log" placeholder="Search the whole log, Enter" value=${text} onInput=${event => setText(event.target.value)} onSearch=${search} /></form>
      <span class="small muted">${items && count(items.length, 'record')}${items?.length === LAST ? ', the newest' : ''}</span>
      <span class="push row"><button class="button small" onClick=${() => download(`/export${query({name})}`, `${name.replaceAll('/', '-')}.jsonl`)}><${Icon} name="download" />Download all</button>
      <${Menu} label="Log: copy" items=${[
        {label: 'Copy as command', icon: 'command', run: () => copyText(`wakeful log ${name}${asked ? ` --text '${asked}'` : ''}`, 'the command')},
        {label: 'Copy as curl', icon: 'copy', run: () => copyText(asCurlGet(path), 'the curl line')},
      ]} /></span>
    </div>
    ${error ? html`<div class="pad"><${Failure} error=${error} retry=${reload} /></div>` : !items ? html`<${Loading} />`
    : !items.length ? html`<${Empty} title="No record contains that" icon="search" />`
    : html`<div class="scroll" tabindex="0" aria-label="records"><${VirtualList} items=${items} height=${rowHeight} keyOf=${one => one.seq} draw=${one => html`<div class=${names('record', at === one.seq && 'chosen')}>
        <button class="record-seq" title="see the session at this record" onClick=${() => setQuery({at: one.seq})}>${one.seq}</button>
        <time class="muted" title=${full(Date.parse(one.at))}>${timeWithSeconds(Date.parse(one.at))}</time>
        <button class="record-kind cut" title="show its content" onClick=${() => setOpened(one)}>${one.kind.replaceAll('_', ' ')}</button>
        <span class="record-words cut" title=${one.words}>${one.words}</span><span class="muted cut only-wide">${one.author.replace(/^person:/, '')}</span>
      </div>`} /></div>`}
    ${opened && html`<${Dialog} title=${`record ${opened.seq}`} onClose=${() => setOpened(null)}><div class="dialog"><header><h2>Record ${opened.seq}: ${opened.kind}</h2><p class="small muted">${full(Date.parse(opened.at))}</p></header>
      <pre class="block tall" tabindex="0">${JSON.stringify(opened.payload, null, 2)?.slice(0, 100_000)}</pre><p class="small muted mono cut">${opened.hash}</p></div><//>`}`;
}

const rowHeight = () => ROW;
