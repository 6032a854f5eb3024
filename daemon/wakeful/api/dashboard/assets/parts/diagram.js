/** A diagram: cards that a worker lays out, and curves between them. Cards are HTML, so a keyboard reaches them. */
import {html, names, useEffect, useRef, useState} from '../lib/ui.js';

let worker = null;
let turn = 0;
const waiting = new Map();

function askWorker(nodes, edges, options) {
  worker ??= startWorker();
  turn += 1;
  const mine = turn;
  return new Promise(resolve => {
    waiting.set(mine, resolve);
    worker.postMessage({turn: mine, nodes, edges, options});
  });
}

function startWorker() {
  const made = new Worker(new URL('../lib/layout-worker.js', import.meta.url), {type: 'module'});
  made.onmessage = ({data}) => {
    waiting.get(data.turn)?.(data);
    waiting.delete(data.turn);
  };
  return made;
}

/**
 * @param {{nodes: Array<{id: string, w: number, h: number}>, edges: Array<{from: string, to: string, tone?: string}>,
 *   draw: (node: object) => any, isDown?: boolean, focus?: string}} props
 */
export function Diagram({nodes, edges, draw, isDown = false, focus, label}) {
  const [laid, setLaid] = useState(null);
  const root = useRef(null);
  const key = JSON.stringify([nodes.map(node => [node.id, node.w, node.h]), edges.map(edge => [edge.from, edge.to]), isDown]);
  useEffect(() => {
    let isGone = false;
    const plain = nodes.map(({id, w, h}) => ({id, w, h}));
    askWorker(plain, edges.map(({from, to}) => ({from, to})), {isDown}).then(found => !isGone && setLaid(found));
    return () => { isGone = true; };
  }, [key]);
  const isReady = laid !== null && nodes.every(node => laid.places[node.id]);
  useEffect(() => {
    if (!isReady || !focus) return;
    const place = laid.places[focus];
    const scroller = root.current?.closest('.scroll');
    if (!place || !scroller) return;
    scroller.scrollLeft = place.x - scroller.clientWidth / 2 + 120;
    scroller.scrollTop = place.y - scroller.clientHeight / 2 + 40;
  }, [isReady, focus, laid]);
  if (!isReady) return html`<div class="diagram" aria-busy="true"></div>`;
  const sizes = new Map(nodes.map(node => [node.id, node]));
  return html`<div class="diagram" ref=${root} role="group" aria-label=${label} style=${{width: `${laid.width + 48}px`, height: `${laid.height + 48}px`}}>
    <svg class="edges" width=${laid.width + 48} height=${laid.height + 48} aria-hidden="true">
      <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 .8 7 4 0 7.200Z" fill="context-stroke" /></marker></defs>
      ${edges.map(edge => html`<path key=${`${edge.from} ${edge.to} ${edge.name ?? ''}`} class=${names('edge', edge.tone)} d=${curve(laid.places, sizes, edge, isDown)} marker-end="url(#arrow)" />`)}
    </svg>
    ${nodes.map(node => html`<div key=${node.id} class="diagram-node" style=${{transform: `translate(${laid.places[node.id].x + 24}px, ${laid.places[node.id].y + 24}px)`, width: `${node.w}px`, height: `${node.h}px`}}>${draw(node)}</div>`)}
  </div>`;
}

function curve(places, sizes, edge, isDown) {
  const a = places[edge.from], b = places[edge.to], from = sizes.get(edge.from), to = sizes.get(edge.to);
  if (!a || !b) return '';
  const [x1, y1, x2, y2] = isDown
    ? [a.x + from.w / 2 + 24, a.y + from.h + 24, b.x + to.w / 2 + 24, b.y + 24]
    : [a.x + from.w + 24, a.y + from.h / 2 + 24, b.x + 24, b.y + to.h / 2 + 24];
  const bend = Math.max(24, Math.abs(isDown ? y2 - y1 : x2 - x1) / 2);
  return isDown ? `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}` : `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}
