// The history of nodes from graph to graph, and its description pass by pass.

const OPERANDS = "operands"; // the rule of a node that was made again because its operands were
const INSIDE = "inside"; // the rule of what has no result of its own in a fused node

/** Return the nodes of a later graph that compute what some nodes of an earlier one did. */
function forward(model, ids, from, to) {
  return walk(model, ids, from, to, model.movesFrom, "new");
}

/** Return the nodes of an earlier graph that some nodes of a later one come from. */
function backward(model, ids, from, to) {
  return walk(model, ids, to, from, model.movesTo, "old");
}

/** Return the nodes of graph `to` that are related to a node of graph `from`. */
function related(model, id, from, to) {
  const inside = model.data.nodes.inside[id];
  const start = inside >= 0 ? inside : id;
  if (to === from) return new Set([id]);
  // What a kernel of several results computes was replaced by the nodes that choose among them.
  const starts = inside >= 0 && model.type(start).startsWith("(")
    ? [start, ...(model.readers(from).get(start) ?? [])] : [start];
  const found = to > from
    ? forward(model, starts, from, to) : backward(model, starts, from, to);
  if (inside >= 0 && to < from) {
    const same = [...found].filter((other) => model.data.nodes.op[other] === model.data.nodes.op[id]);
    if (same.length) return new Set(same);
  }
  return found;
}

function walk(model, ids, low, high, moves, end) {
  const seen = new Set(ids);
  const pending = [...ids];
  const target = end === "new" ? high : low;
  while (pending.length) {
    for (const move of moves.get(pending.pop()) ?? []) {
      const graph = model.graphOf(move.pass);
      if (graph > low && graph <= high && !seen.has(move[end])) {
        seen.add(move[end]);
        pending.push(move[end]);
      }
    }
  }
  const present = model.graphs[target].nodes;
  return new Set([...seen].filter((id) => present.has(id)));
}

/** Return what each pass did with a node, {stages: [{pass, text, nodes, graph}], end}. */
function history(model, id) {
  const first = model.graphs.findIndex((graph) => graph.nodes.has(id));
  const stages = [];
  let here = new Set([id]);
  if (first < 0) return { stages, end: new Set() };
  for (let i = first + 1; i < model.graphs.length; i++) {
    const graph = model.graphs[i];
    if (graph.isPlan) break;
    const { made, seen } = movesWithin(model, here, i);
    const next = new Set([...seen].filter((node) => graph.nodes.has(node)));
    if (!next.size) {
      const taken = absorbed(model, i, here);
      stages.push({ pass: graph.name, graph: i, ...taken });
      if (!taken.nodes.length) return { stages, end: new Set() };
      here = new Set(taken.nodes);
    } else if (made.length && !same(here, next)) {
      const rules = [...new Set(made.map((move) => move.rule))];
      const changes = rules.filter((rule) => rule !== OPERANDS);
      const news = [...next].filter((node) => !here.has(node));
      const names = named(model, news);
      let text = `became ${names} (${changes.join(", ")})`;
      if (!changes.length) text = `rebuilt with new operands: ${names}`;
      else if (rules.includes(INSIDE)) text = `fused into a kernel (${changes.join(", ")})`;
      stages.push({ pass: graph.name, graph: i, text, nodes: news });
      here = next;
    }
  }
  return { stages, end: here };
}

/** Return the moves that the pass of a graph made of some nodes and of what came of them. */
function movesWithin(model, ids, graph) {
  const made = [];
  const seen = new Set(ids);
  const pending = [...ids];
  while (pending.length) {
    for (const move of model.movesFrom.get(pending.pop()) ?? []) {
      if (model.graphOf(move.pass) !== graph) continue;
      made.push(move);
      if (!seen.has(move.new)) {
        seen.add(move.new);
        pending.push(move.new);
      }
    }
  }
  return { made, seen };
}

/** Describe what absorbed nodes that a pass removed: the replacements of their nearest readers. */
function absorbed(model, index, here) {
  const readers = model.readers(index - 1);
  const now = model.graphs[index].nodes;
  const seen = new Set(here);
  const pending = [...here];
  const rules = new Set();
  const taken = new Set();
  while (pending.length) {
    for (const reader of readers.get(pending.shift()) ?? []) {
      if (seen.has(reader)) continue;
      seen.add(reader);
      const within = movesWithin(model, [reader], index);
      const next = [...within.seen].filter((id) => now.has(id));
      const own = within.made.filter((move) => move.rule !== OPERANDS);
      if (own.length && next.length) {
        rules.add(own[own.length - 1].rule);
        next.forEach((node) => taken.add(node));
      } else if (!next.length) {
        pending.push(reader);
      }
    }
  }
  const nodes = [...taken].filter((node) => now.has(node) && model.data.nodes.inputs[node].length);
  if (!rules.size) return { text: "dropped: no longer used", nodes: [] };
  const labels = [...rules].join(", ");
  if (!nodes.length) return { text: `eliminated (${labels})`, nodes: [] };
  return { text: `absorbed by ${named(model, nodes)} (${labels})`, nodes };
}

/** Name nodes, but not those that only choose one of the results of another among them. */
function named(model, ids) {
  const made = ids.filter((id) => !model.data.nodes.inputs[id].some((input) => ids.includes(input)));
  const label = (id) => (model.isKernel(id) ? "a fused kernel" : model.describe(id));
  return [...new Set(made.map(label))].join(", ");
}

/** Return the steps of the plan that compute a node of a graph. */
function stepsOf(model, id, index) {
  if (!model.plan) return [];
  const cache = (model.stepCache ??= new Map());
  const inside = model.data.nodes.inside[id];
  const key = inside >= 0 ? inside : id;
  const known = cache.get(key);
  if (known) return known;
  const last = model.graphs.length - 1;
  let ends = model.graphs[last].nodes.has(key) ? [key] : forward(model, [key], index, last);
  if (!ends.size && !ends.length) ends = history(model, key).end;
  const steps = new Set();
  for (let end of ends) {
    // A result of several, or another name for the same memory, is made by what it reads.
    for (let i = 0; i < 16 && !model.stepOf.has(end); i++) {
      const inputs = model.data.nodes.inputs[end];
      if (inputs.length !== 1) break;
      [end] = inputs;
    }
    if (model.stepOf.has(end)) steps.add(model.stepOf.get(end));
  }
  const found = [...steps].sort((a, b) => a - b);
  cache.set(key, found);
  return found;
}

function same(one, other) {
  return one.size === other.size && [...one].every((id) => other.has(id));
}
