/**
 * The login of a tab: by the one-time code in its address, by a token that the person enters, or by the token of
 * another tab of the same origin. A browser has one cookie for all tabs, so all tabs share one login. A tab that logs
 * in again sends its token to the other tabs.
 */
import {dropToken, keepToken, person, Problem, request, token} from './api.js';

const ASK_MS = 250;
const channel = new BroadcastChannel('wakeful.login');
channel.onmessage = ({data}) => {
  if (data.ask && token()) channel.postMessage({token: token(), person: person()});
  else if (data.token && data.isNew) {
    keepToken(data.token, data.person);
    location.reload();
  }
};

/** Log in. The code is removed from the address before anything else happens. */
export async function logIn() {
  const code = /^#code=(.+)$/.exec(location.hash)?.[1];
  if (code) {
    history.replaceState(null, '', `${location.pathname}#/now`);
    dropToken();
    await exchange({code: decodeURIComponent(code)}, {});
  } else if (!token()) await askOtherTabs();
}

/** @param {string} text a token of `wakeful token new`. */
export function logInWithToken(text) {
  return exchange({}, {Authorization: `Bearer ${text}`});
}

export async function logOut() {
  await request('POST', '/logout', {body: {}}).catch(() => {});
  dropToken();
  location.reload();
}

async function exchange(body, headers) {
  const answer = await (await request('POST', '/login', {body, headers})).json();
  if (!answer.token) throw new Problem(500, 'No token', 'The daemon gave no token for the code of the link.');
  keepToken(answer.token, answer.person);
  channel.postMessage({token: answer.token, person: answer.person, isNew: true});
}

function askOtherTabs() {
  return new Promise(resolve => {
    const asking = new BroadcastChannel('wakeful.login');
    const end = () => { asking.close(); resolve(); };
    const timer = setTimeout(end, ASK_MS);
    asking.onmessage = ({data}) => {
      if (!data.token || data.isNew) return;
      clearTimeout(timer);
      keepToken(data.token, data.person);
      end();
    };
    asking.postMessage({ask: true});
  });
}
