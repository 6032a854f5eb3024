/**
 * Requests to the daemon. The token lives in sessionStorage, which belongs to this origin and its port; the cookie
 * that was given with it travels by itself. Every failure becomes a `Problem` with words a person can act on.
 */
const TOKEN = 'wakeful.token';
const PERSON = 'wakeful.person';

export class Problem extends Error {
  /** @param {number} status 0: no answer at all. */
  constructor(status, title, detail) {
    super(detail || title);
    this.status = status;
    this.title = title;
  }
}

export const token = () => sessionStorage.getItem(TOKEN);
export const person = () => sessionStorage.getItem(PERSON);

export function keepToken(text, who) {
  sessionStorage.setItem(TOKEN, text);
  if (who) sessionStorage.setItem(PERSON, who);
}

export function dropToken() {
  sessionStorage.removeItem(TOKEN);
}

/** The address of a session's route: a name may hold slashes, and is one segment. */
export function at(name, rest = '') {
  return `/sessions/${encodeURIComponent(name)}${rest}`;
}

/** A query string without the values that say nothing. */
export function query(values) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== '' && one !== false) found.append(name, String(one));
    }
  }
  const text = found.toString();
  return text ? `?${text}` : '';
}

/** @returns {Promise<Response>} an answer that is fine; everything else is thrown. */
export async function request(method, path, {body, headers = {}, signal} = {}) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      signal,
      cache: 'no-store',
      headers: {
        ...(token() ? {Authorization: `Bearer ${token()}`} : {}),
        ...(body === undefined ? {} : {'Content-Type': 'application/json'}),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem(0, 'No answer', 'The daemon does not answer. It may be stopped, or restarting.');
  }
  if (!answer.ok) throw await readProblem(answer);
  return answer;
}

async function readProblem(answer) {
  const said = await answer.json().catch(() => ({}));
  return new Problem(answer.status, said.title || `Error ${answer.status}`, said.detail || said.error || answer.statusText);
}

export async function get(path, options) {
  return (await request('GET', path, options)).json();
}

export async function post(path, body) {
  return (await request('POST', path, {body})).json();
}

/** Lines of JSON, as `log` and `search` answer. */
export async function getLines(path, options) {
  const text = await (await request('GET', path, options)).text();
  return text.split('\n').filter(Boolean).map(line => JSON.parse(line));
}

/** A verb that changes something. Safe to repeat: a click is one call, however often the network tries. */
export async function call(verb, body) {
  const answer = await request('POST', `/call/${verb}`, {body, headers: {'Idempotency-Key': crypto.randomUUID()}});
  return answer.json();
}
