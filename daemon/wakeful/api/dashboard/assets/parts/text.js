/** Text from outside, never shown as markup. Fences and back-ticks become code. Long text is cut until it is opened. */
import {html, useState} from '../lib/ui.js';
import {Time} from './basics.js';

const LONGEST = 4000;

export function Prose({text, longest = LONGEST}) {
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole || text.length <= longest ? text : text.slice(0, longest);
  return html`<div class="prose">${shown.split('```').map((part, i) => (i % 2 ? html`<pre class="block">${part.replace(/^\w*\n/, '')}</pre>` : html`<${Spans} text=${part} />`))}
    ${shown.length < text.length && html`<button class="more" onClick=${() => setWhole(true)}>Show all ${text.length.toLocaleString()} characters</button>`}</div>`;
}

const MOMENT = /(?:\bat )?(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)/;

/** A sentence of the daemon. Its times are in UTC, and are shown in the viewer's time zone. */
export function Sentence({text}) {
  return html`${text.split(MOMENT).map((part, i) => (i % 2 ? html`<${Time} at=${part} />` : part))}`;
}

function Spans({text}) {
  if (!text.trim()) return null;
  return html`<p>${text.trim().split('`').map((part, i) => (i % 2 ? html`<code>${part}</code>` : part))}</p>`;
}
