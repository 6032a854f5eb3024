/** The keyboard: single keys and pairs such as `g n`. They are ignored while the person types in a field. */
import {signal} from './ui.js';

export const isHelpOpen = signal(false);
const PAIR_MS = 900;
const bindings = new Map();
let first = null;
let firstAt = 0;

/**
 * Bind keys while a part of the page is shown. Returns a function that removes the bindings. Call it in a layout
 * effect, so that a part has its keys as soon as it is on the screen.
 */
export function bindKeys(map) {
  for (const [keys, act] of Object.entries(map)) bindings.set(keys, act);
  return () => {
    for (const [keys, act] of Object.entries(map)) if (bindings.get(keys) === act) bindings.delete(keys);
  };
}

function isTyping(target) {
  return target.closest?.('input, textarea, select, [contenteditable]') !== null;
}

addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key === 'Escape' && isTyping(event.target)) {
    event.target.blur();
    return;
  }
  if (isTyping(event.target) || document.querySelector('dialog[open]')) return;
  // Enter and Space belong to the element that has the focus.
  if ((event.key === 'Enter' || event.key === ' ') && event.target.closest?.('a, button, summary, [role=slider]')) return;
  const pair = first !== null && event.timeStamp - firstAt < PAIR_MS ? `${first} ${event.key}` : null;
  first = event.key;
  firstAt = event.timeStamp;
  const act = (pair && bindings.get(pair)) || bindings.get(event.key);
  if (!act) return;
  event.preventDefault();
  act(event);
});

export const HELP = [
  ['g n', 'Now'], ['g g', 'Graph'], ['g t', 'Timeline'], ['g w', 'Why'], ['g h', 'Health'],
  ['/', 'Search'], ['j  k', 'Next and previous line'], ['Enter', 'Open'], ['Space', 'Why not: unfold the line'],
  ['c', 'Write to the session'], ['[  ]', 'One record back, one forward'], ['Esc', 'Leave a field, go back to now'], ['?', 'This help'],
];
