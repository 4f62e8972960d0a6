// The address of the page: what is shown stands behind the #, so that it can be sent as a link.

const TABS = ["node", "rules", "evidence"];
const DRAWERS = ["none", "timeline", "memory"];

/** Let the address name what is shown. */
function writeAddress(app) {
  const { graph, other, compare, node, overlay, tab, drawer } = app.state;
  const parts = { graph: app.model.graphs[graph].name };
  if (node >= 0) parts.node = node;
  if (compare) parts.compare = app.model.graphs[other].name;
  if (overlay !== "kind") parts.overlay = overlay;
  if (tab !== "node") parts.panel = tab;
  if (drawer !== "none") parts.drawer = drawer;
  const text = `#${new URLSearchParams(parts)}`;
  if (text !== location.hash) window.history.replaceState(null, "", text);
}

/** Return the graph of a name, or of a number; -1 where there is none. */
function graphNamed(model, name) {
  const at = model.graphs.findIndex((graph) => graph.name === name);
  if (at >= 0 || name === null) return at;
  const number = Number(name);
  return Number.isInteger(number) && number >= 0 && number < model.graphs.length ? number : -1;
}

/** Take over what the address names; what is not there is left as it is. */
function readAddress(app) {
  const given = new URLSearchParams(location.hash.slice(1));
  const { model, state } = app;
  const other = graphNamed(model, given.get("compare"));
  if (other >= 0) {
    state.compare = true;
    state.other = other;
  }
  const graph = graphNamed(model, given.get("graph"));
  if (graph >= 0) state.graph = graph;
  const overlay = app.overlays.find((one) => one.key === given.get("overlay"));
  if (overlay && !overlay.missing) state.overlay = overlay.key;
  if (TABS.includes(given.get("panel"))) state.tab = given.get("panel");
  if (DRAWERS.includes(given.get("drawer"))) state.drawer = given.get("drawer");
  const node = given.has("node") ? Number(given.get("node")) : -1;
  if (!Number.isInteger(node) || node < 0 || node >= model.count) return;
  state.node = node;
  if (graph < 0) state.graph = Math.max(0, model.homeOf(node, state.graph));
  app.aim = node;
}

/** Bring the node that the address names to the middle, once there is something to see. */
function settle(app) {
  if (app.aim === undefined) return;
  for (const view of app.state.compare ? [app.left, app.view] : [app.view]) {
    const [first] = view.selected;
    if (first !== undefined) view.centre(first);
  }
  app.aim = undefined;
}
