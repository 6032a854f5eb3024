/** The router. The address has the whole state of a view: `#/session/hr%2Fpayroll?at=12&tab=output`. */
import {computed, signal} from './ui.js';

export const VIEWS = ['now', 'graph', 'timeline', 'session', 'why', 'health'];

function read() {
  const [path, search = ''] = location.hash.replace(/^#\/?/, '').split('?');
  const [view, ...rest] = path.split('/').map(decodeURIComponent);
  const known = VIEWS.includes(view) ? view : 'now';
  return {view: known, name: known === view ? rest.join('/') : '', query: Object.fromEntries(new URLSearchParams(search))};
}

export const route = signal(read());
addEventListener('hashchange', () => { route.value = read(); });

/** The view and its subject, without the query: a page with another `at` is the same page. */
export const page = computed(() => `${route.value.view}/${route.value.name}`);

export function link(view, name = '', values = {}) {
  const kept = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== '');
  const search = new URLSearchParams(kept.map(([key, value]) => [key, String(value)])).toString();
  return `#/${view}${name ? `/${encodeURIComponent(name)}` : ''}${search ? `?${search}` : ''}`;
}

export function go(view, name = '', values = {}) {
  location.hash = link(view, name, values);
}

/** Change a part of the query. With `replace`, the browser's history gets no new step, such as during a drag. */
export function setQuery(changes, {replace = false} = {}) {
  const {view, name, query} = route.value;
  const next = link(view, name, {...query, ...changes});
  if (!replace) location.hash = next;
  else {
    history.replaceState(null, '', next);
    route.value = read();
  }
}
