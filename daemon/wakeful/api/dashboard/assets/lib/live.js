/**
 * One stream per browser. The tab that holds a Web Lock reads `/live` and tells the others by a BroadcastChannel; when
 * it closes, the lock goes to the next tab, which goes on from the position it knows.
 *
 * A tab that joins late asks the leader for a snapshot. Nothing here runs while nothing happens: the only timer is the
 * one that notices a dead connection, and it is set anew by each keep-alive.
 */
import {readStream} from './sse.js';
import {token} from './api.js';
import {learnRights} from './rights.js';
import * as store from './store.js';

// The daemon sends a comment every 15 seconds. After two that did not come, the connection is dead.
const SILENCE_MS = 40_000;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 10_000;

/** One channel and lock for each token: two people in two tabs of one browser see what each of them may see. */
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

/** Read the stream for ever: reconnect at once when it breaks, then ever more slowly, and at once when the tab is seen. */
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

/** Wait, or until somebody looks at the tab or the network is back. */
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
