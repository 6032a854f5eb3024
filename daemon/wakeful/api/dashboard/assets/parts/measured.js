/**
 * A list of items whose heights only the browser knows. Only the visible items and a margin around them are drawn. The
 * height of an item is estimated until it is drawn, and then measured. The visible text does not move while items above
 * it are added, removed or grow. If the person is at the end of the list, the list stays at its end.
 */
import {html, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState} from '../lib/ui.js';
import {find} from './virtual.js';

const MARGIN_PX = 600;
/** A scroll position within this distance from the end counts as the end. */
const END_PX = 24;

/**
 * @param {{items: any[], estimate: (item: any) => number, keyOf: (item: any) => string|number, draw: (item: any) => any, label: string,
 *   onStart?: () => void}} props `onStart` is called repeatedly while the first item is near.
 */
export function MeasuredList({items, estimate, keyOf, draw, label, onStart}) {
  const root = useRef(null);
  const heights = useRef(new Map());
  /**
   * The anchor must not move on the screen. It is the end, or the first visible item with its `top`. `past` is the
   * height of the part of that item that is scrolled out above.
   */
  const anchor = useRef({isEnd: true});
  const [size, setSize] = useState(900);
  const [, redraw] = useReducer(turn => turn + 1, 0);
  const places = useMemo(() => new Map(items.map((item, i) => [keyOf(item), i])), [items]);
  const drawn = useMemo(() => new WeakMap(), [draw]);

  const tops = new Float64Array(items.length + 1);
  items.forEach((item, i) => { tops[i + 1] = tops[i] + (heights.current.get(keyOf(item)) ?? estimate(item)); });
  const total = tops[items.length];
  const place = places.get(anchor.current.key);
  const top = anchor.current.isEnd || place === undefined ? total - size : tops[place] + anchor.current.past;
  const first = Math.max(0, find(tops, top - MARGIN_PX));
  const last = Math.min(items.length, find(tops, top + size + MARGIN_PX) + 1);
  const layout = useRef(null);
  layout.current = {items, tops, first, last};

  useEffect(() => watch(root.current, anchor, layout, keyOf, setSize, redraw), []);
  const sizes = useMemo(() => ({observer: new ResizeObserver(redraw), seen: new WeakSet()}), []);
  useLayoutEffect(() => () => sizes.observer.disconnect(), []);

  useLayoutEffect(() => {
    let isChanged = false;
    for (const element of root.current.querySelectorAll(':scope > .measured-item')) {
      if (!sizes.seen.has(element)) sizes.observer.observe(element);
      sizes.seen.add(element);
      const key = keyOf(items[Number(element.dataset.index)]);
      const height = element.getBoundingClientRect().height;
      if (Math.abs(height - (heights.current.get(key) ?? 0)) < 0.5) continue;
      heights.current.set(key, height);
      isChanged = true;
    }
    hold(root.current, anchor.current, places);
    if (isChanged) redraw();
    if (first === 0) onStart?.();
  });

  const shown = [];
  for (let i = first; i < last; i += 1) {
    const item = items[i];
    if (!drawn.has(item)) drawn.set(item, draw(item));
    shown.push(html`<div key=${keyOf(item)} class="measured-item" role="listitem" aria-posinset=${i + 1} aria-setsize=${onStart ? -1 : items.length} data-index=${i}>${drawn.get(item)}</div>`);
  }
  return html`<div ref=${root} class="measured" role="list" aria-label=${label}>
    <div key="above" role="presentation" style=${{height: `${tops[first]}px`}}></div>${shown}<div key="below" role="presentation" style=${{height: `${total - tops[last]}px`}}></div>
  </div>`;
}

const startOf = (element, scroller) => element.getBoundingClientRect().top - scroller.getBoundingClientRect().top + scroller.scrollTop;

/** Choose a new anchor whenever the person scrolls. Returns a function that ends this. */
function watch(root, anchor, layout, keyOf, setSize, redraw) {
  const scroller = root.closest('.scroll');
  let frame = 0;
  const look = (canBeEnd = true) => {
    const {items, tops} = layout.current;
    if (!items.length) return;
    const isEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < END_PX;
    const start = startOf(root, scroller);
    const i = Math.min(find(tops, Math.max(0, scroller.scrollTop - start)), items.length - 1);
    anchor.current = isEnd && canBeEnd ? {isEnd} : {key: keyOf(items[i]), past: scroller.scrollTop - start - tops[i], top: start + tops[i]};
  };
  const soon = () => { frame ||= requestAnimationFrame(() => { frame = 0; redraw(); }); };
  const scrolled = () => { look(); soon(); };
  // A part that the person unfolds at the end must stay under the pointer.
  const clicked = () => { look(false); requestAnimationFrame(() => requestAnimationFrame(() => look())); };
  scroller.addEventListener('scroll', scrolled, {passive: true});
  root.addEventListener('click', clicked, {capture: true});
  const sizes = new ResizeObserver(() => setSize(scroller.clientHeight));
  sizes.observe(scroller);
  return () => {
    cancelAnimationFrame(frame);
    scroller.removeEventListener('scroll', scrolled);
    root.removeEventListener('click', clicked, {capture: true});
    sizes.disconnect();
  };
}

/** Scroll by the distance that the anchor moved. A relative change does not disturb scrolling under way. */
function hold(root, anchor, places) {
  const scroller = root.closest('.scroll');
  if (anchor.isEnd) {
    if (scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight > 1) scroller.scrollTop = scroller.scrollHeight;
    return;
  }
  const element = root.querySelector(`:scope > [data-index="${places.get(anchor.key)}"]`);
  if (!element) return;
  const top = startOf(element, scroller);
  if (Math.abs(top - anchor.top) < 0.5) return;
  scroller.scrollTop += top - anchor.top;
  anchor.top = top;
}
