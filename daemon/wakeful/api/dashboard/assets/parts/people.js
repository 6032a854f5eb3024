/** The people who look at a session or write to it. */
import {html, names} from '../lib/ui.js';
import {presence} from '../lib/store.js';

const initials = person => person.replace(/^person:/, '').slice(0, 2);

/** @param {{session?: string}} props Without a session: everyone who is present. */
export function Faces({session}) {
  const found = new Map();
  for (const one of presence.value) {
    if (session !== undefined && one.session !== session) continue;
    if (!found.has(one.person) || one.doing === 'writes') found.set(one.person, one);
  }
  if (!found.size) return null;
  return html`<span class="people-row" aria-label="people here">
    ${[...found.values()].slice(0, 6).map(one => html`<span key=${one.person} class=${names('face', one.doing)} title=${`${one.person} ${one.doing}${one.session ? ` in ${one.session}` : ''}`}>${initials(one.person)}</span>`)}
  </span>`;
}
