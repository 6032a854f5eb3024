/** What the person may do. A button that would be refused is not offered; the daemon judges each call all the same. */
import {signal} from './ui.js';
import {get} from './api.js';

/** The answer of `/me`; null: not known yet. */
const known = signal(null);

/** Asked with every snapshot, when the tab is seen again, and when something was refused: a role may have changed. */
export async function learnRights() {
  try {
    known.value = await get('/me');
  } catch {
    // The stream, which asks at the same moment, says what is wrong.
  }
}

document.addEventListener('visibilitychange', () => { if (document.visibilityState === 'visible' && known.value !== null) learnRights(); });

/** @param {string} name of the session. */
export function may(verb, name) {
  const rights = known.value;
  return rights === null || (rights.sessions[name] ?? rights.calls).includes(verb);
}
