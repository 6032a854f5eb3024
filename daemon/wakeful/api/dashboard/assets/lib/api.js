/**
 * Requests to the daemon. The token is in sessionStorage, which belongs to this origin and its port. The browser adds
 * the cookie that was given with the token. Every failure becomes a `Problem` with a message for the person.
 */
const TOKEN = 'wakeful.token';
const PERSON = 'wakeful.person';

export class Problem extends Error {
  /** @param {number} status 0 if there was no answer. */
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

/** Make the address of a session's route. The name is one segment, even if it contains slashes. */
export function at(name, rest = '') {
  return `/sessions/${encodeURIComponent(name)}${rest}`;
}

/** Make a query string. Values that are undefined, null, empty or false are left out. */
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

/** @returns {Promise<Response>} a successful answer. Every other answer is thrown as a `Problem`. */
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

/** Get lines of JSON, the format of `log` and `search`. */
export async function getLines(path, options) {
  const text = await (await request('GET', path, options)).text();
  return text.split('\n').filter(Boolean).map(line => JSON.parse(line));
}

/** Call a verb that changes something. With the key, a click is one call, even if the network repeats the request. */
export async function call(verb, body) {
  const answer = await request('POST', `/call/${verb}`, {body, headers: {'Idempotency-Key': crypto.randomUUID()}});
  return answer.json();
}
