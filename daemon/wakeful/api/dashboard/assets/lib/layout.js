/**
 * A layered layout from left to right. Every edge points to a later layer. Edges have few crossings, and neighbours are
 * near each other. Pure. Each sweep takes linear time in nodes and edges, so thousands of nodes take milliseconds. The
 * layout runs in a worker.
 */
const SWEEPS = 8;
const GAP = 12;
const LAYER_GAP = 56;

/**
 * @param {Array<{id: string, w: number, h: number}>} nodes
 * @param {Array<{from: string, to: string}>} edges
 * @returns {{places: Record<string, {x: number, y: number}>, width: number, height: number}}
 */
export function layOut(nodes, edges, {isDown = false} = {}) {
  const byId = new Map(nodes.map(node => [node.id, {...node, before: [], after: [], layer: 0, place: 0}]));
  const known = edges.filter(edge => byId.has(edge.from) && byId.has(edge.to) && edge.from !== edge.to);
  for (const edge of dropCycles(byId, known)) {
    byId.get(edge.from).after.push(byId.get(edge.to));
    byId.get(edge.to).before.push(byId.get(edge.from));
  }
  const layers = splitLayers([...byId.values()]);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) order(sweep % 2 ? [...layers].reverse() : layers, sweep % 2 ? 'after' : 'before');
  return placeAll(layers, isDown);
}

/** Drop the edges that close a cycle, by a depth-first search without recursion. */
function dropCycles(byId, edges) {
  const out = new Map();
  for (const edge of edges) out.set(edge.from, [...(out.get(edge.from) ?? []), edge]);
  const state = new Map();
  const kept = [];
  for (const start of byId.keys()) {
    if (state.has(start)) continue;
    const stack = [{id: start, next: 0}];
    state.set(start, 'open');
    while (stack.length) {
      const top = stack[stack.length - 1];
      const edge = (out.get(top.id) ?? [])[top.next++];
      if (!edge) { state.set(top.id, 'done'); stack.pop(); continue; }
      if (state.get(edge.to) === 'open') continue;
      kept.push(edge);
      if (!state.has(edge.to)) { state.set(edge.to, 'open'); stack.push({id: edge.to, next: 0}); }
    }
  }
  return kept;
}

/** Split the nodes into layers, by the longest path from a start. A start node is one layer before its first reader. */
function splitLayers(nodes) {
  const left = new Map(nodes.map(node => [node, node.before.length]));
  const queue = nodes.filter(node => !node.before.length);
  for (let i = 0; i < queue.length; i += 1) {
    for (const next of queue[i].after) {
      next.layer = Math.max(next.layer, queue[i].layer + 1);
      left.set(next, left.get(next) - 1);
      if (!left.get(next)) queue.push(next);
    }
  }
  for (const node of nodes) if (!node.before.length && node.after.length) node.layer = Math.min(...node.after.map(next => next.layer)) - 1;
  const layers = [];
  for (const node of nodes) (layers[node.layer] ??= []).push(node);
  const full = layers.filter(Boolean);
  full.forEach(layer => layer.forEach((node, i) => { node.place = i; }));
  return full;
}

function order(layers, side) {
  for (const layer of layers) {
    for (const node of layer) {
      const beside = node[side];
      node.wish = beside.length ? beside.reduce((sum, one) => sum + one.place, 0) / beside.length : node.place;
    }
    layer.sort((a, b) => a.wish - b.wish || a.place - b.place);
    layer.forEach((node, i) => { node.place = i; });
  }
}

function placeAll(layers, isDown) {
  const across = node => (isDown ? node.w : node.h);
  const along = node => (isDown ? node.h : node.w);
  const sizes = layers.map(layer => layer.reduce((sum, node) => sum + across(node) + GAP, -GAP));
  const total = Math.max(0, ...sizes);
  layers.forEach((layer, i) => {
    let at = (total - sizes[i]) / 2;
    for (const node of layer) { node.at = at; at += across(node) + GAP; }
  });
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) for (const layer of sweep % 2 ? [...layers].reverse() : layers) settle(layer, across, sweep % 2 ? 'after' : 'before');
  const lowest = layers.length ? Math.min(...layers.flat().map(node => node.at)) : 0;
  const places = {};
  let start = 0;
  for (const layer of layers) {
    const size = Math.max(...layer.map(along));
    for (const node of layer) {
      const cross = node.at - lowest;
      places[node.id] = isDown ? {x: cross, y: start} : {x: start, y: cross};
    }
    start += size + (isDown ? LAYER_GAP / 2 : LAYER_GAP);
  }
  const widest = Math.max(0, ...layers.flat().map(node => node.at - lowest + across(node)));
  const length = Math.max(0, start - (isDown ? LAYER_GAP / 2 : LAYER_GAP));
  return {places, width: isDown ? widest : length, height: isDown ? length : widest};
}

/** Move each node as near to the middle of its neighbours as its layer allows. */
function settle(layer, across, side) {
  const middle = node => node.at + across(node) / 2;
  const wishes = layer.map(node => (node[side].length ? node[side].reduce((sum, one) => sum + middle(one), 0) / node[side].length - across(node) / 2 : node.at));
  let floor = -Infinity;
  layer.forEach((node, i) => { node.at = Math.max(wishes[i], floor); floor = node.at + across(node) + GAP; });
  let ceiling = Infinity;
  for (let i = layer.length - 1; i >= 0; i -= 1) {
    const node = layer[i];
    node.at = Math.min(node.at, ceiling - across(node));
    const room = i > 0 ? layer[i - 1].at + across(layer[i - 1]) + GAP : -Infinity;
    if (node.at > wishes[i]) node.at = Math.max(wishes[i], Math.min(node.at, room));
    ceiling = node.at - GAP;
  }
}
