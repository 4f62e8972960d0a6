// The search field: nodes by operation, name, type, line, or number, best ones first.

const FOUND = 60; // results that are listed

/** Return the nodes of all graphs that have all words of a query; those of the shown one first. */
function search(model, query, shown) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return { ids: [], total: 0 };
  model.haystack ??= Array.from({ length: model.count }, (_, id) => {
    const line = model.line(model.data.nodes.line[id]);
    const where = line ? `${line.file}:${line.number} ${line.scope}` : "";
    return `#${id} ${model.label(id)} ${model.text(model.data.nodes.op[id])} ${model.type(id)} ${where}`.toLowerCase();
  });
  const scored = [];
  for (let id = 0; id < model.count; id++) {
    const text = model.haystack[id];
    if (!words.every((word) => text.includes(word))) continue;
    const inside = model.data.nodes.inside[id];
    const here = model.graphs[shown].nodes.has(inside >= 0 ? inside : id);
    const start = model.label(id).toLowerCase().startsWith(words[0]);
    scored.push([(here ? 0 : 2) + (start ? 0 : 1), id]);
  }
  scored.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  return { ids: scored.slice(0, FOUND).map(([, id]) => id), total: scored.length };
}

class SearchField {
  constructor(input, list, app) {
    this.input = input;
    this.list = list;
    this.app = app;
    this.at = 0;
    input.addEventListener("input", () => this.update());
    input.addEventListener("focus", () => this.update());
    input.addEventListener("blur", () => setTimeout(() => {
      list.hidden = true;
      input.setAttribute("aria-expanded", false);
      this.point();
    }, 150));
    input.addEventListener("keydown", (event) => this.key(event));
  }

  update() {
    const { ids, total } = search(this.app.model, this.input.value, this.app.state.graph);
    this.ids = ids;
    this.at = 0;
    this.list.hidden = !this.input.value;
    this.input.setAttribute("aria-expanded", !this.list.hidden);
    const rows = ids.map((id, i) => this.row(id, i));
    if (!ids.length) rows.push(element("div", { class: "muted" }, "nothing found"));
    else if (total > ids.length) rows.push(element("div", { class: "muted" }, `${total} found`));
    this.list.replaceChildren(...rows);
    this.point();
  }

  /** Mark the result that Enter chooses, also for screen readers. */
  point() {
    [...this.list.children].forEach((row, i) => {
      row.classList.toggle("here", i === this.at && row.classList.contains("found"));
      if (row.classList.contains("found")) row.setAttribute("aria-selected", i === this.at);
    });
    if (this.ids?.length && !this.list.hidden) this.input.setAttribute("aria-activedescendant", `found-${this.at}`);
    else this.input.removeAttribute("aria-activedescendant");
  }

  row(id, i) {
    const { model, state } = this.app;
    const inside = model.data.nodes.inside[id];
    const home = model.homeOf(id, state.graph);
    const there = model.graphs[state.graph].nodes.has(inside >= 0 ? inside : id);
    return element("div", {
      class: "found", role: "option", id: `found-${i}`,
      onmousedown: (event) => { event.preventDefault(); this.choose(id); },
    }, swatch(model, model.data.nodes.style[id]), element("span", {}, model.label(id)),
    element("span", { class: "muted" }, this.beside(id, there || home < 0 ? "" : `in ${model.graphs[home].name}`)));
  }

  /** Return what tells a node from others of its name: its type, graph, line and group. */
  beside(id, graph) {
    const { model } = this.app;
    const line = model.line(model.data.nodes.line[id]);
    const made = line ? `${line.file}:${line.number}${line.scope ? ` ${line.scope}` : ""}` : "";
    return [graph || model.type(id), made].filter(Boolean).join("  ");
  }

  key(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      this.at = Math.min(Math.max(this.at + step, 0), Math.max(0, (this.ids?.length ?? 1) - 1));
      this.point();
      this.list.children[this.at]?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter" && this.ids?.length) {
      this.choose(this.ids[this.at]);
    } else if (event.key === "Escape") {
      this.input.blur();
    }
    event.stopPropagation();
  }

  choose(id) {
    this.list.hidden = true;
    this.input.blur();
    this.app.select(id, true);
  }
}
