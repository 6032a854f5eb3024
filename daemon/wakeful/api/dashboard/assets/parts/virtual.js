/** A list that draws only its visible lines. The caller gives the height of each item, so nothing must be measured. */
import {html, useLayoutEffect, useMemo, useRef, useState} from '../lib/ui.js';

const AROUND = 6;

/**
 * @param {{items: any[], height: (item: any) => number, draw: (item: any, index: number) => any, keyOf: (item: any) => string,
 *   reveal?: number|null, follow?: boolean}} props `reveal`: an index to scroll to; `follow`: stay at the end while it grows.
 */
export function VirtualList({items, height, draw, keyOf, reveal = null, follow = false, role = 'list', label}) {
  const root = useRef(null);
  const [view, setView] = useState({top: 0, size: 900});
  const tops = useMemo(() => {
    const found = new Float64Array(items.length + 1);
    for (let i = 0; i < items.length; i += 1) found[i + 1] = found[i] + height(items[i]);
    return found;
  }, [items, height]);
  const total = tops[items.length];

  useLayoutEffect(() => {
    const scroller = root.current.closest('.scroll');
    let frame = 0;
    const look = () => {
      frame = 0;
      const offset = root.current ? root.current.getBoundingClientRect().top - scroller.getBoundingClientRect().top + scroller.scrollTop : 0;
      setView({top: scroller.scrollTop - offset, size: scroller.clientHeight});
    };
    const soon = () => { frame ||= requestAnimationFrame(look); };
    look();
    scroller.addEventListener('scroll', soon, {passive: true});
    const sizes = new ResizeObserver(soon);
    sizes.observe(scroller);
    return () => { cancelAnimationFrame(frame); scroller.removeEventListener('scroll', soon); sizes.disconnect(); };
  }, []);

  useLayoutEffect(() => {
    if (reveal === null || reveal < 0 || reveal >= items.length) return;
    const scroller = root.current.closest('.scroll');
    const start = root.current.getBoundingClientRect().top - scroller.getBoundingClientRect().top + scroller.scrollTop;
    const top = start + tops[reveal];
    const end = start + tops[reveal + 1];
    if (top < scroller.scrollTop + 48) scroller.scrollTop = top - 48;
    else if (end > scroller.scrollTop + scroller.clientHeight - 16) scroller.scrollTop = end - scroller.clientHeight + 16;
  }, [reveal]);

  useLayoutEffect(() => {
    const scroller = root.current.closest('.scroll');
    if (follow) scroller.scrollTop = scroller.scrollHeight;
  }, [follow, total]);

  const first = Math.max(0, find(tops, view.top) - AROUND);
  const last = Math.min(items.length, find(tops, view.top + view.size) + AROUND);
  const drawn = useMemo(() => new Map(), [items, tops, draw]);
  const shown = [];
  for (let i = first; i < last; i += 1) {
    // Lines that were drawn are used again, so that scrolling draws only the new lines.
    if (!drawn.has(i)) drawn.set(i, html`<div key=${keyOf(items[i])} role="listitem" class="virtual-item" style=${{transform: `translateY(${tops[i]}px)`, height: `${tops[i + 1] - tops[i]}px`}}>${draw(items[i], i)}</div>`);
    shown.push(drawn.get(i));
  }
  return html`<div ref=${root} class="virtual" role=${role} aria-label=${label} style=${{height: `${total}px`}}>${shown}</div>`;
}

/** Find the last index whose top is at or before `at`. */
export function find(tops, at) {
  let low = 0, high = tops.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (tops[middle] <= at) low = middle;
    else high = middle - 1;
  }
  return low;
}
