/** The libraries that every part of the page uses: Preact, its hooks, signals, and `html` for templates. */
import {h, render, Fragment} from '../vendor/preact.js';
import {useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState, useCallback} from '../vendor/preact-hooks.js';
import {signal, computed, effect, batch, useSignal, useComputed} from '../vendor/signals.js';
import htm from '../vendor/htm.js';

export const html = htm.bind(h);
export {h, render, Fragment};
export {useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState, useCallback};
export {signal, computed, effect, batch, useSignal, useComputed};

/** Join class names, without those that are false. */
export function names(...parts) {
  return parts.filter(Boolean).join(' ');
}
