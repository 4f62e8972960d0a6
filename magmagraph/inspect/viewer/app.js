// The page: what is shown, and what keys, buttons and the address do to it.

const began = performance.now();
const HELP = [
  ["← →", "previous and next graph, from the source to the plan"], ["c", "compare with another graph, side by side: the source at first"],
  ["/", "search"], ["↑ ↓", "go to an operand, to a reader"], ["Enter", "bring the selected node to the middle"],
  ["f", "fit the graph (a long one by its width)"], ["+ −", "zoom in and out (also Ctrl and wheel, or pinch)"], ["o", "next overlay"],
  ["x", "collapse or expand all kernels and groups"], ["d", "mark or unmark what the pass changed"],
  ["1 2 3", "node, rules, measurements"], ["m", "timeline, memory, neither"], ["t", "light or dark"], ["Esc", "clear the selection"],
];

class App {
  constructor(model) {
    this.model = model;
    this.theme = new Theme(model.styles);
    this.overlays = makeOverlays(model);
    this.closed = new Set();
    this.state = {
      graph: model.graphs.length - 1, other: 0, compare: false, node: -1, overlay: "kind",
      tab: "node", drawer: "none", changes: true,
    };
    const events = {
      select: (id, view) => this.choose(id, view),
      moved: (view) => this.follow(view),
      toggled: (key) => this.toggle(key),
    };
    this.view = new GraphView($("graph"), model, this.theme, events);
    this.left = new GraphView($("before"), model, this.theme, events);
    this.timeline = new Chart($("timeline"), $("tip"), this);
    this.memory = new Chart($("memory"), $("tip"), this);
    this.search = new SearchField($("search"), $("results"), this);
    this.controls();
    readAddress(this);
    this.update();
  }

  // ---------------------------------------------------------------- actions

  /** Show a graph, by its position from the source (0) to the plan. */
  go(graph) {
    this.state.graph = Math.min(Math.max(graph, 0), this.model.graphs.length - 1);
    this.update();
  }

  /** Select a node, and show a graph that has it. */
  select(id, centre = false, from = this.state.graph) {
    this.state.node = id;
    if (id >= 0) {
      const shown = from === this.state.graph || !this.state.compare ? this.state.graph : from;
      const home = this.model.homeOf(id, shown);
      if (home >= 0 && home !== this.state.graph && home !== this.state.other) this.state.graph = home;
      else if (home >= 0 && !this.state.compare) this.state.graph = home;
      this.state.tab = this.state.tab === "evidence" ? "evidence" : this.state.tab;
      if (this.state.tab !== "node" && centre === false) this.state.tab = "node";
    }
    this.update();
    if (id >= 0 && centre) {
      this.open(id);
      const [first] = this.view.selected;
      if (first !== undefined) this.view.centre(first);
    }
  }

  /** Select what was clicked in a view; the other view shows what it is there. */
  choose(id, view) {
    this.select(id, false, view.graph);
    if (id < 0 || !this.state.compare) return;
    const other = view === this.view ? this.left : this.view;
    const [first] = other.selected;
    if (first !== undefined) other.centre(first);
  }

  /** Open the closed kernel that a node is inside of. */
  open(id) {
    const inside = this.model.data.nodes.inside[id];
    if (inside >= 0 && this.closed.delete(`k${inside}`)) this.update();
  }

  toggle(key) {
    if (!this.closed.delete(key)) this.closed.add(key);
    this.update();
  }

  toggleAll() {
    if (this.closed.size) this.closed.clear();
    else for (const frame of this.view.drawing.frames) this.closed.add(frame.key);
    this.update();
  }

  set(name, value) {
    this.state[name] = value;
    this.update();
  }

  /** Show two graphs or one: the shown one beside the source, and of the source the plan. */
  compare() {
    const { state, model } = this;
    state.compare = !state.compare;
    if (state.compare && state.other === state.graph) {
      state.other = 0;
      if (state.graph === 0) state.graph = model.graphs.length - 1;
    }
    this.update();
  }

  next(name, values) {
    this.set(name, values[(values.indexOf(this.state[name]) + 1) % values.length]);
  }

  /** Select an operand (-1) or a reader (1) of the selected node. */
  step(direction) {
    const { node, graph } = this.state;
    if (node < 0) return;
    const nodes = this.model.graphs[graph].nodes;
    const near = direction < 0
      ? this.model.data.nodes.inputs[node].filter((id) => nodes.has(id))
      : this.model.readers(graph).get(node) ?? [];
    if (near.length) this.select(near[0], true);
  }

  /** Return the steps that compute a node of a graph. */
  stepsOf(node, graph) {
    return stepsOf(this.model, node, graph);
  }

  chosenSteps() {
    return this.state.node < 0 ? [] : this.stepsOf(this.state.node, this.state.graph);
  }

  /** Return round times up to an end, in so many steps at most. */
  ticks(end, most) {
    return ticks(end, most);
  }

  /** Return the bytes of the arena that are alive in each step. */
  liveBytes() {
    return liveBytes(this.model.plan);
  }

  // ---------------------------------------------------------------- showing

  update() {
    const { state } = this;
    const started = performance.now();
    document.body.classList.toggle("comparing", state.compare);
    document.body.dataset.drawer = state.drawer;
    this.view.show(state.graph, this.closed);
    if (state.compare) this.left.show(state.other, this.closed);
    this.marks();
    this.colours();
    this.header();
    this.panels();
    this.drawer();
    this.view.redraw();
    if (state.compare) this.left.redraw();
    writeAddress(this);
    this.took = performance.now() - started;
  }

  /** Work out what is selected in each view, and what changed between the two graphs. */
  marks() {
    const { model, state, view, left } = this;
    const from = state.compare ? state.other : Math.max(0, state.graph - 1);
    const present = (graph) => {
      if (state.node < 0) return new Set();
      const inside = model.data.nodes.inside[state.node];
      const outer = inside >= 0 ? inside : state.node;
      if (model.graphs[graph].nodes.has(outer)) return new Set([state.node]);
      const home = model.homeOf(state.node, graph);
      return home < 0 ? new Set() : related(model, state.node, home, graph);
    };
    view.selected = present(state.graph);
    left.selected = state.compare ? present(state.other) : new Set();
    const marks = () => ({ added: new Set(), dropped: new Set(), remade: new Set() });
    view.marks = marks();
    left.marks = marks();
    const [early, late] = from <= state.graph ? [from, state.graph] : [state.graph, from];
    const before = model.graphs[early].nodes;
    const after = model.graphs[late].nodes;
    if (!state.changes || before === after) return;
    const older = late === state.graph ? left.marks : view.marks;
    const newer = late === state.graph ? view.marks : left.marks;
    for (const id of after) {
      if (!before.has(id)) (this.onlyRemade(id) ? newer.remade : newer.added).add(id);
    }
    if (!state.compare) return;
    for (const id of before) {
      const moves = model.movesFrom.get(id) ?? [];
      if (after.has(id)) continue;
      if (!moves.length || moves.some((move) => move.rule !== OPERANDS)) older.dropped.add(id);
    }
  }

  onlyRemade(id) {
    const moves = this.model.movesTo.get(id) ?? [];
    return moves.length > 0 && moves.every((move) => move.rule === OPERANDS);
  }

  colours() {
    const overlay = this.overlays.find((o) => o.key === this.state.overlay);
    const ids = (view) => [...view.boxesOf.keys()];
    this.view.overlay = overlayColours(overlay, this.model, this.state.graph, ids(this.view));
    this.left.overlay = this.state.compare
      ? overlayColours(overlay, this.model, this.state.other, ids(this.left)) : null;
    $("legend").replaceChildren(...this.legend(overlay), ...this.markLegend());
  }

  legend(overlay) {
    const { model, view } = this;
    if (view.overlay) {
      const boxes = view.overlay.legend.map(([text, colour]) => {
        const made = element("span", { class: overlay.sorts ? "entry" : "ramp" }, element("i", {}), text);
        made.style.setProperty("--colour", colour);
        return made;
      });
      return [element("b", {}, overlay.title), ...boxes, element("span", { class: "muted" }, overlay.about)];
    }
    const styles = [...new Set([...view.drawing.frames, ...view.drawing.boxes].map((box) => box.style))]
      .sort((a, b) => a - b);
    return styles.map((style) => element("span", { class: "entry" }, swatch(model, style), model.styles.legend[style]));
  }

  /** Say what the outlines mean that are there. */
  markLegend() {
    const { theme, view, left } = this;
    const entry = (ids, text, colour, kind) => {
      if (!ids.size) return [];
      const made = element("span", { class: `entry mark ${kind}` }, element("i", {}), text);
      made.style.setProperty("--colour", colour);
      return [made];
    };
    const all = (name) => new Set([...view.marks[name], ...left.marks[name]]);
    return [
      ...entry(all("added"), "new", theme.added, ""),
      ...entry(all("remade"), "remade on new operands", theme.edge, "gone"),
      ...entry(all("dropped"), "gone", theme.dropped, "gone"),
    ];
  }

  header() {
    const { model, state } = this;
    const graph = model.graphs[state.graph];
    $("slider").value = state.graph;
    $("slider").setAttribute("aria-valuetext", graph.name);
    $("stops").querySelectorAll("button").forEach((stop, i) => {
      stop.classList.toggle("here", i === state.graph);
      if (i === state.graph) stop.setAttribute("aria-current", "step");
      else stop.removeAttribute("aria-current");
      stop.classList.toggle("other", state.compare && i === state.other);
    });
    $("other").value = state.other;
    $("compare").setAttribute("aria-pressed", state.compare);
    $("overlay").value = state.overlay;
    $("before-name").textContent = this.counted(state.other);
    $("graph-name").textContent = this.counted(state.graph);
    for (const tab of TABS) {
      $(`tab-${tab}`).setAttribute("aria-selected", state.tab === tab);
      $(`tab-${tab}`).tabIndex = state.tab === tab ? 0 : -1;
    }
    $("panel").setAttribute("aria-labelledby", `tab-${state.tab}`);
    $("graph").setAttribute("aria-label", `picture of the graph ${this.counted(state.graph)}`);
    $("before").setAttribute("aria-label", `picture of the graph ${this.counted(state.other)}`);
    this.tell();
    for (const name of DRAWERS.slice(1)) $(`show-${name}`).setAttribute("aria-pressed", state.drawer === name);
  }

  /** Say to a screen reader what is selected, or which graph is shown. */
  tell() {
    const { model, state } = this;
    const { node, graph } = state;
    const line = node < 0 ? null : model.line(model.data.nodes.line[node]);
    const made = line ? `, ${line.file} line ${line.number}${line.scope ? `, in ${line.scope}` : ""}` : "";
    const text = node < 0 ? `graph ${this.counted(graph)}`
      : `${model.label(node)}, ${model.type(node)}${made}; ${model.data.nodes.inputs[node].length} inputs, `
        + `${(model.readers(graph).get(node) ?? []).length} readers`;
    if ($("status").textContent !== text) $("status").textContent = text;
  }

  counted(index) {
    const graph = this.model.graphs[index];
    const steps = graph.isPlan ? `, ${this.model.plan.steps.length} steps` : "";
    const before = index && !graph.isPlan ? this.model.graphs[index - 1] : null;
    const same = before && before.nodes === graph.nodes ? ", unchanged" : "";
    return `${graph.name} · ${graph.nodes.size} nodes${steps}${same}`;
  }

  panels() {
    const render = { node: renderNode, rules: renderRules, evidence: renderEvidence };
    const key = `${this.state.tab} ${this.state.node} ${this.state.graph}`;
    if (key === this.panelKey) return;
    this.panelKey = key;
    render[this.state.tab](this, $("panel"));
    $("panel").scrollTop = 0;
  }

  drawer() {
    const { drawer } = this.state;
    if (drawer === "none") return;
    const missing = drawer === "timeline" ? timelineMissing(this.model) : memoryMissing(this.model);
    $("missing").hidden = !missing;
    $("missing").textContent = missing;
    for (const name of DRAWERS.slice(1)) $(name).hidden = drawer !== name || Boolean(missing);
    const rows = drawer === "timeline" && !missing ? streamsOf(this.model) : 0;
    document.body.style.setProperty("--drawer", missing ? "72px" : rows ? `${70 + rows * 30}px` : "210px");
    if (missing) return;
    requestAnimationFrame(() => (drawer === "timeline"
      ? drawTimeline(this.timeline, this) : drawMemory(this.memory, this)));
  }

  /** Let the other view follow the one that was moved. */
  follow(view) {
    if (!this.state.compare) return;
    const other = view === this.view ? this.left : this.view;
    if (!other.drawing || other.scale === view.scale) return;
    const factor = view.scale / other.scale;
    const { clientWidth: wide, clientHeight: high } = other.canvas;
    other.x = wide / 2 - (wide / 2 - other.x) * factor;
    other.y = high / 2 - (high / 2 - other.y) * factor;
    other.scale = view.scale;
    other.redraw();
  }

  // ---------------------------------------------------------------- controls

  controls() {
    const { model } = this;
    document.title = `${model.data.title} · magmagraph`;
    $("title").textContent = model.data.title;
    const slider = $("slider");
    slider.max = model.graphs.length - 1;
    document.documentElement.style.setProperty("--stops", model.graphs.length);
    slider.addEventListener("input", () => this.go(Number(slider.value)));
    document.body.classList.toggle("single", model.graphs.length < 2);
    let seen = null;
    model.graphs.forEach((graph, i) => {
      const idle = seen === graph.nodes && !graph.isPlan;
      seen = graph.nodes;
      $("stops").append(element("button", {
        class: idle ? "idle" : "", title: this.counted(i), onclick: () => this.go(i),
      }, graph.name));
      $("other").append(element("option", { value: i }, graph.name));
    });
    for (const overlay of this.overlays) {
      $("overlay").append(element("option", {
        value: overlay.key, disabled: overlay.missing ? "" : null, title: overlay.missing || null,
      }, overlay.missing ? `${overlay.title} (not measured)` : overlay.title));
    }
    const on = (id, action) => $(id).addEventListener("click", action);
    $("other").addEventListener("change", () => this.set("other", Number($("other").value)));
    $("overlay").addEventListener("change", () => this.set("overlay", $("overlay").value));
    on("compare", () => this.compare());
    on("fit", () => this.fit());
    on("theme", () => this.turn());
    on("help", () => $("keys").showModal());
    for (const tab of TABS) {
      on(`tab-${tab}`, () => this.set("tab", tab));
      $(`tab-${tab}`).addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (!step) return;
        event.preventDefault();
        event.stopPropagation();
        const next = TABS[(TABS.indexOf(tab) + step + TABS.length) % TABS.length];
        this.set("tab", next);
        $(`tab-${next}`).focus();
      });
    }
    for (const name of DRAWERS.slice(1)) {
      on(`show-${name}`, () => this.set("drawer", this.state.drawer === name ? "none" : name));
    }
    $("key-list").append(...HELP.flatMap(([keys, text]) => [
      element("dt", {}, ...keys.split(" ").map((key) => element("kbd", {}, key))), element("dd", {}, text)]));
    addEventListener("keydown", (event) => this.key(event));
    addEventListener("hashchange", () => { readAddress(this); this.update(); settle(this); });
    preparePrinting(this);
    new ResizeObserver(() => { this.view.redraw(); this.left.redraw(); this.drawer(); }).observe($("stage"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
      this.theme.set(event.matches ? "dark" : "light");
      this.update();
    });
  }

  fit() {
    this.view.fit();
    if (this.state.compare) this.left.fit();
  }

  turn() {
    this.theme.set(this.theme.other);
    this.update();
  }

  key(event) {
    if (event.target instanceof HTMLInputElement && event.target.type === "search") return;
    if (event.target instanceof HTMLSelectElement) return;
    if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
    const overlays = this.overlays.filter((o) => !o.missing).map((o) => o.key);
    const actions = {
      ArrowLeft: () => this.go(this.state.graph - 1),
      ArrowRight: () => this.go(this.state.graph + 1),
      ArrowUp: () => this.step(-1),
      ArrowDown: () => this.step(1),
      Enter: () => this.state.node >= 0 && this.select(this.state.node, true),
      Escape: () => this.select(-1),
      "/": () => $("search").focus(),
      "?": () => $("keys").showModal(),
      "+": () => this.view.zoom(1.25),
      "=": () => this.view.zoom(1.25),
      "-": () => this.view.zoom(0.8),
      c: () => this.compare(),
      d: () => this.set("changes", !this.state.changes),
      f: () => this.fit(),
      m: () => this.next("drawer", DRAWERS),
      o: () => this.next("overlay", overlays),
      t: () => this.turn(),
      x: () => this.toggleAll(),
      1: () => this.set("tab", "node"),
      2: () => this.set("tab", "rules"),
      3: () => this.set("tab", "evidence"),
    };
    const action = actions[event.key];
    if (!action) return;
    const own = event.target.closest?.("a, button, summary, [role=tab]");
    if (own && event.key === "Enter") return;
    if (event.target.closest?.(".wide") && event.key.startsWith("Arrow")) return;
    if (event.target === $("slider") && event.key.startsWith("Arrow")) return;
    event.preventDefault();
    action();
  }
}

async function main() {
  try {
    const data = await readData($("data").textContent);
    const app = new App(new Model(data));
    window.magmagraph = app;
    app.view.draw();
    settle(app);
    app.ready = performance.now();
    app.readTime = app.ready - began;
    document.documentElement.dataset.ready = String(Math.round(app.ready));
  } catch (error) {
    $("failure").hidden = false;
    $("failure").textContent = `This page cannot be shown: ${error.message}`;
    throw error;
  }
}

main();
