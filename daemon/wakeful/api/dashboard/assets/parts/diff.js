/** A unified diff, line by line, as text. */
import {html} from '../lib/ui.js';

const LINES_SHOWN = 400;

export function Diff({text}) {
  const lines = text.replace(/\n$/, '').split('\n').filter(line => !/^(---|\+\+\+) /.test(line));
  return html`<pre class="diff" tabindex="0" aria-label="difference">${lines.slice(0, LINES_SHOWN).map(line => html`<span class=${toneOf(line)}>${line}\n</span>`)}</pre>
    ${lines.length > LINES_SHOWN && html`<p class="small muted">${lines.length - LINES_SHOWN} more lines.</p>`}`;
}

const toneOf = line => (line.startsWith('@@') ? 'diff-place' : line.startsWith('+') ? 'diff-new' : line.startsWith('-') ? 'diff-old' : 'diff-same');
