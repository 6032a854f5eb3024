/** The rights of the person. A button that would be refused is not shown. The daemon still judges each call. */
import {signal} from './ui.js';
import {get} from './api.js';

/** The answer of `/me`, or null before it is known. */
const known = signal(null);

/** Load the rights again. Called for every snapshot, when the tab becomes visible, and after a refusal. */
export async function learnRights() {
  try {
    known.value = await get('/me');
  } catch {
    // The stream sends a request at the same time, and reports the problem.
  }
}

document.addEventListener('visibilitychange', () => { if (document.visibilityState === 'visible' && known.value !== null) learnRights(); });

/** May the person call this verb? True while the rights are not known. @param {string} name of the session. */
export function may(verb, name) {
  const rights = known.value;
  return rights === null || (rights.sessions[name] ?? rights.calls).includes(verb);
}
