// The page's data, with the indexes in which the other files look things up.

const SCHEMA = "magmagraph.viewer";
const VERSION = 2;

/** Return the data that stands in the page: JSON, deflated, in base64. */
async function readData(text) {
  const plain = atob(text.trim());
  const raw = new Uint8Array(plain.length);
  for (let i = 0; i < plain.length; i++) raw[i] = plain.charCodeAt(i);
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).json();
}

/** Return the numbers whose first and whose steps are given. */
function fromSteps(steps) {
  let at = 0;
  return steps.map((step) => (at += step));
}

/** Append to the list that a map has for a key. */
function append(map, key, value) {
  const list = map.get(key);
  if (list) list.push(value);
  else map.set(key, [value]);
}

class Model {
  constructor(data) {
    if (data.schema !== SCHEMA || data.version !== VERSION) {
      throw new Error(`this page reads ${SCHEMA} ${VERSION}, not ${data.schema} ${data.version}`);
    }
    this.data = data;
    this.metrics = data.metrics;
    this.styles = data.styles;
    this.plan = data.plan;
    this.evidence = data.evidence;
    this.passes = data.passes;
    this.count = data.nodes.op.length;
    this.graphs = this._graphs();
    this.layouts = [];
    for (const record of this.passes) {
      for (const refusal of record.refusals) {
        for (const name of ["rule", "node", "line", "reason", "group", "other", "obstacle"]) refusal[name] = this.text(refusal[name]);
      }
      for (const fallback of record.fallbacks) {
        for (const name of ["way", "reason", "node"]) fallback[name] = this.text(fallback[name]);
      }
    }
    this.movesFrom = new Map();
    this.movesTo = new Map();
    const moves = data.moves;
    for (let i = 0; i < moves.old.length; i++) {
      const move = {
        pass: moves.pass[i], rule: this.text(moves.rule[i]), old: moves.old[i], new: moves.new[i],
      };
      append(this.movesFrom, move.old, move);
      append(this.movesTo, move.new, move);
    }
    this.stepOf = new Map();
    if (this.plan) {
      this.plan.steps.forEach((step, i) => {
        if (step.kernel !== "copy") this.stepOf.set(step.node, i);
      });
    }
  }

  text(number) {
    return this.data.texts[number];
  }

  /** Return all that is known of one node. */
  node(id) {
    const nodes = this.data.nodes;
    return {
      id,
      op: this.text(nodes.op[id]),
      name: this.text(nodes.name[id]),
      type: this.text(nodes.type[id]),
      style: nodes.style[id],
      attributes: this.text(nodes.attributes[id]),
      label: this.text(nodes.label[id]),
      line: nodes.line[id],
      inputs: nodes.inputs[id],
      inside: nodes.inside[id],
    };
  }

  label(id) {
    return this.text(this.data.nodes.label[id]);
  }

  type(id) {
    return this.text(this.data.nodes.type[id]);
  }

  /** Return whether a node is a fused kernel. */
  isKernel(id) {
    return this.styles.names[this.data.nodes.style[id]] === "fused";
  }

  /** Return a node as one would name it: "sum axes=1 : float32[batch]". */
  describe(id) {
    return `${this.label(id)} : ${this.type(id)}`;
  }

  /** Return {file, path, number, scope, rows} of a line that made nodes, or null. */
  line(index) {
    if (index < 0) return null;
    const [at, number, scope] = this.data.lines[index];
    const file = this.data.files[at];
    return {
      file: this.text(file.name), path: this.text(file.path), number, scope: this.text(scope),
      rows: file.rows.filter(([n]) => Math.abs(n - number) <= 3),
    };
  }

  /** Return the frames of a graph; they are read when they are first looked at. */
  layout(index) {
    const at = this.graphs[index].layout;
    return (this.layouts[at] ??= JSON.parse(this.data.layouts[at]));
  }

  /** Return who reads each node of a graph. */
  readers(index) {
    const graph = this.graphs[index];
    if (!graph.readers) {
      graph.readers = new Map();
      for (const id of graph.nodes) {
        for (const operand of this.data.nodes.inputs[id]) append(graph.readers, operand, id);
      }
    }
    return graph.readers;
  }

  /** Return the number of the graph that a pass made, or -1. */
  graphOf(pass) {
    return this.passes[pass].graph;
  }

  /** Return where a node is: the graph that is shown if that has it, else the first that does. */
  homeOf(id, shown) {
    const inside = this.data.nodes.inside[id];
    const outer = inside >= 0 ? inside : id;
    if (this.graphs[shown].nodes.has(outer)) return shown;
    return this.graphs.findIndex((graph) => graph.nodes.has(outer));
  }

  /** Return the graphs, unpacked one from the other; the plan is the last of them once more. */
  _graphs() {
    const made = [];
    let nodes = new Set();
    for (const graph of this.data.graphs) {
      const drops = fromSteps(graph.drops);
      const adds = fromSteps(graph.adds);
      if (drops.length || adds.length) {
        nodes = new Set(nodes);
        for (const id of drops) nodes.delete(id);
        for (const id of adds) nodes.add(id);
      }
      made.push({ ...graph, nodes, readers: null, isPlan: false });
    }
    if (this.data.plan) made.push({ ...made[made.length - 1], name: "plan", isPlan: true });
    return made;
  }
}
