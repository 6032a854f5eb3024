/**
 * One stream per browser. The tab that holds a Web Lock, the leader, reads `/live` and passes events to the other tabs
 * by a BroadcastChannel. When the leader closes, the next tab gets the lock. It continues from the last event that it
 * knows.
 *
 * A tab that joins late asks the leader for a snapshot. The only timer is the one that detects a dead connection. Each
 * keep-alive restarts it.
 */
import {readStream} from './sse.js';
import {token} from './api.js';
import {learnRights} from './rights.js';
import * as store from './store.js';

// The daemon sends a comment every 15 seconds. If two comments are missing, the connection is dead.
const SILENCE_MS = 40_000;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 10_000;

/** Start the stream. Each token has its own channel and lock. So two people in one browser see only their own rows. */
export function startLive() {
  const scope = token()?.slice(0, 12) ?? 'none';
  const channel = new BroadcastChannel(`wakeful.${scope}`);
  let isLeader = false;
  channel.onmessage = ({data}) => {
    if (isLeader) {
      if (data.ask && store.isLoaded.value) channel.postMessage({event: 'snapshot', data: store.makeSnapshot(), id: store.lastEvent.value, link: store.link.value});
      return;
    }
    if (data.event) takeEvent(data.event, data.data, data.id);
    if (data.link) store.link.value = data.link;
  };
  channel.postMessage({ask: true});
  const tell = message => channel.postMessage(message);
  navigator.locks.request(`wakeful.${scope}`, async () => {
    isLeader = true;
    store.isLeader.value = true;
    await lead(tell);
  });
}

function takeEvent(event, data, id) {
  if (id) store.lastEvent.value = id;
  if (event === 'snapshot') {
    store.takeSnapshot(data);
    learnRights();
  } else if (event === 'changes') store.takeChanges(data);
  else if (event === 'words') store.takeWords(data);
  else if (event === 'presence') store.takePresence(data);
}

/** Read the stream for ever. Reconnect after growing pauses, or at once if the tab or the network comes back. */
async function lead(tell) {
  let pause = FIRST_PAUSE_MS;
  for (;;) {
    const stop = new AbortController();
    let watchdog = 0;
    const hear = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => stop.abort(), SILENCE_MS);
      if (store.link.value.state !== 'on') setLink(tell, {state: 'on'});
      pause = FIRST_PAUSE_MS;
    };
    try {
      await readStream('/live', {
        signal: stop.signal,
        lastId: store.lastEvent.value,
        onBytes: hear,
        onEvent: ({event, data, id}) => {
          takeEvent(event, data, id);
          tell({event, data, id});
        },
      });
      setLink(tell, {state: 'off', words: 'The daemon ended the stream.'});
    } catch (error) {
      if (error.status === 401 || error.status === 403) {
        setLink(tell, {state: 'shut', words: error.message});
        return;
      }
      setLink(tell, {state: 'off', words: error.message});
    } finally {
      clearTimeout(watchdog);
    }
    await rest(pause);
    pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
  }
}

function setLink(tell, link) {
  const since = store.link.value.state === link.state ? store.link.value.since : Date.now();
  store.link.value = {...link, since};
  tell({link: store.link.value});
}

/** Wait this long, or until the tab becomes visible or the network is back. */
function rest(milliseconds) {
  return new Promise(resolve => {
    const done = () => {
      clearTimeout(timer);
      removeEventListener('online', done);
      document.removeEventListener('visibilitychange', seen);
      resolve();
    };
    const seen = () => document.visibilityState === 'visible' && done();
    const timer = setTimeout(done, milliseconds);
    addEventListener('online', done);
    document.addEventListener('visibilitychange', seen);
  });
}
