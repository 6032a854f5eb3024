/** The worker that computes the layout, so that the page stays responsive. */
import {layOut} from './layout.js';

addEventListener('message', ({data}) => {
  postMessage({turn: data.turn, ...layOut(data.nodes, data.edges, data.options)});
});
