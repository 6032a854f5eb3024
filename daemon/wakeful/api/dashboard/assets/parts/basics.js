/** Small parts that every view uses: times, states, menus, dialogs, toasts, and the four states of a page. */
import {html, names, signal, useLayoutEffect, useRef, useState} from '../lib/ui.js';
import {full, now, relative, version} from '../lib/times.js';
import {Icon} from './icons.js';

/** A moment, relative to now. The full time is shown on hover. */
export function Time({at, prefix = '', class: more}) {
  if (!at) return null;
  const moment = typeof at === 'number' ? at : Date.parse(at);
  return html`<time class=${more} dateTime=${new Date(moment).toISOString()} title=${full(moment)}>${prefix}${relative(moment, now.value)}</time>`;
}

const STATE_WORDS = {
  suspended: 'at rest', running: 'running', sleeping: 'sleeping', terminated: 'terminated', archived: 'archived',
  asks: 'asks you', failed: 'failed', queued: 'queued', succeeded: 'succeeded',
};
export const stateWord = state => STATE_WORDS[state] ?? state;
const ICON_OF_STATE = {terminated: 'stopped', archived: 'stopped', cancelled: 'stopped', interrupted: 'stopped', lost: 'failed'};

export function StateIcon({state}) {
  return html`<span class=${`state is-${state}`}><${Icon} name=${ICON_OF_STATE[state] ?? state} label=${stateWord(state)} /></span>`;
}

export function State({state}) {
  return html`<span class=${`state is-${state}`}><${Icon} name=${ICON_OF_STATE[state] ?? state} />${stateWord(state)}</span>`;
}

export function Version({text, other}) {
  return html`<code title=${text ?? 'none'} class=${names(other !== undefined && other !== text && 'differs')}>${version(text)}</code>`;
}

export function Empty({title, children, icon = 'suspended'}) {
  return html`<div class="empty"><${Icon} name=${icon} class="muted" /><h2>${title}</h2>${children}</div>`;
}

export function Failure({error, retry}) {
  return html`<div class="problem" role="alert">
    <${Icon} name="failed" />
    <div class="stack">
      <div><strong>${error.title ?? 'The request failed'}</strong><p>${error.message.split('`').map((part, i) => (i % 2 ? html`<code>${part}</code>` : part))}</p></div>
      ${retry && html`<div><button class="button small" onClick=${retry}>Try again</button></div>`}
    </div>
  </div>`;
}

/** Grey lines as placeholders while data is loaded. */
export function Loading({lines = 6}) {
  const widths = [60, 82, 45, 70, 38, 76, 52, 64];
  return html`<div class="stack pad" role="status" aria-label="loading">
    ${Array.from({length: lines}, (_, i) => html`<div class="skeleton" style=${{width: `${widths[i % widths.length]}%`}}></div>`)}
  </div>`;
}

// -- toasts ------------------------------------------------------------------------------------

const toasts = signal([]);
let nextToast = 1;

/** @param {{words: string, isBad?: boolean, action?: {label: string, run: () => void}}} toast */
export function say(toast) {
  const id = nextToast++;
  toasts.value = [...toasts.value.slice(-2), {id, ...toast}];
  setTimeout(() => dismiss(id), toast.action || toast.isBad ? 12_000 : 4000);
}

function dismiss(id) {
  toasts.value = toasts.value.filter(one => one.id !== id);
}

export function Toasts() {
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toasts.value.map(one => html`<div key=${one.id} class=${names('toast', one.isBad && 'bad')}>
      <p>${one.words}</p>
      ${one.action && html`<button onClick=${() => { dismiss(one.id); one.action.run(); }}>${one.action.label}</button>`}
      <button aria-label="dismiss" onClick=${() => dismiss(one.id)}><${Icon} name="close" /></button>
    </div>`)}
  </div>`;
}

export async function copyText(text, what) {
  await navigator.clipboard.writeText(text);
  say({words: `Copied ${what}.`});
}

// -- dialogs and menus -------------------------------------------------------------------------

/** A modal dialog of the browser, which keeps the focus and restores it. */
export function Dialog({title, onClose, children}) {
  const dialog = useRef(null);
  useLayoutEffect(() => {
    dialog.current.showModal();
  }, []);
  const closeOutside = event => event.target === dialog.current && onClose();
  return html`<dialog ref=${dialog} aria-label=${title} onClose=${onClose} onCancel=${onClose} onClick=${closeOutside}>${children}</dialog>`;
}

/** @param {{items: Array<{label: string, run: () => void, icon?: string, danger?: boolean} | null>}} props null is a separator. */
export function Menu({label, items, children, buttonClass = 'icon-button'}) {
  const [isOpen, setOpen] = useState(false);
  const root = useRef(null);
  // A layout effect runs before the next frame. Until it runs, Escape would go to the page instead of the open menu.
  useLayoutEffect(() => {
    if (!isOpen) return undefined;
    root.current.querySelector('.menu-list button')?.focus();
    const leave = event => { if (!root.current.contains(event.target)) setOpen(false); };
    const key = event => {
      if (event.key === 'Escape') { event.preventDefault(); setOpen(false); root.current.querySelector('button').focus(); }
      if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
      const all = [...root.current.querySelectorAll('.menu-list button')];
      const step = event.key === 'ArrowDown' ? 1 : -1;
      all[(all.indexOf(document.activeElement) + step + all.length) % all.length].focus();
      event.preventDefault();
    };
    document.addEventListener('pointerdown', leave);
    root.current.addEventListener('keydown', key);
    const node = root.current;
    return () => { document.removeEventListener('pointerdown', leave); node.removeEventListener('keydown', key); };
  }, [isOpen]);
  const choose = item => { setOpen(false); item.run(); };
  return html`<div class="menu" ref=${root}>
    <button class=${buttonClass} aria-haspopup="menu" aria-expanded=${isOpen} aria-label=${label} title=${label} onClick=${() => setOpen(!isOpen)}>
      ${children ?? html`<${Icon} name="more" />`}
    </button>
    ${isOpen && html`<div class="menu-list" role="menu">
      ${items.map(item => (item === null ? html`<hr />` : html`<button role="menuitem" class=${names(item.danger && 'danger')} onClick=${() => choose(item)}>
        ${item.icon && html`<${Icon} name=${item.icon} />`}${item.label}</button>`))}
    </div>`}
  </div>`;
}
