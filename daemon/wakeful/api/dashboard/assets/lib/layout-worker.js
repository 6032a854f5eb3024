/** The layout, off the page's own thread. */
import {layOut} from './layout.js';

addEventListener('message', ({data}) => {
  postMessage({turn: data.turn, ...layOut(data.nodes, data.edges, data.options)});
});
