// The panel about one node: what it is, where it was made, its history, how it runs.

/** Return a link to a node. */
function nodeLink(app, id, text) {
  const model = app.model;
  return element(
    "a",
    { class: "node", href: `#node=${id}`, title: model.describe(id),
      onclick: (event) => { event.preventDefault(); app.select(id, true); } },
    swatch(model, model.data.nodes.style[id]), text ?? model.label(id),
  );
}

function swatch(model, style) {
  const name = model.styles.names[style];
  const form = name === "scope" || name === "update" ? `${name} ` : "";
  const made = element("span", { class: `swatch ${form}${ROUND.has(name) ? "round" : ""}` },
    name === "scope" ? "" : model.styles.signs[style] || "▣");
  made.style.setProperty("--colour", model.styles.colours[style]);
  return made;
}

/** Return the user's code around the line that made a node. */
function codeOf(model, index) {
  const line = model.line(index);
  if (!line) return null;
  const rows = line.rows.map(([number, text]) => element(
    "div", { class: number === line.number ? "row here" : "row" },
    element("span", { class: "number" }, String(number)), element("code", {}, text || " "),
  ));
  return section(
    "Made at",
    element("p", { class: "where", title: line.path }, `${line.file}:${line.number}`,
      line.scope ? element("span", { class: "muted" }, `  in ${line.scope}`) : null),
    rows.length ? element("div", { class: "code lines" }, ...rows) : null,
  );
}

function renderNode(app, panel) {
  const { model } = app;
  const id = app.state.node;
  panel.replaceChildren();
  if (id < 0) {
    panel.append(overview(app));
    return;
  }
  const node = model.node(id);
  const graph = app.state.graph;
  panel.append(
    element("h2", {}, swatch(model, node.style), node.label),
    element("p", { class: "type" }, node.type),
    facts([
      ["operation", node.op], ["name", node.name],
      ["kind", model.styles.legend[node.style]], ["attributes", node.attributes],
      ["fused into", node.inside >= 0 ? nodeLink(app, node.inside, "a fused kernel") : ""],
    ]),
  );
  const code = codeOf(model, node.line);
  if (code) panel.append(code);
  const origins = originsOf(model, id, graph);
  if (origins.length) panel.append(section("Origin", chips(app, origins)));
  if (node.inputs.length) panel.append(section("Inputs", chips(app, node.inputs)));
  const readers = graph >= 0 ? model.readers(graph).get(id) ?? [] : [];
  if (readers.length) panel.append(section("Used by", chips(app, readers)));
  const start = origins.length === 1 ? origins[0] : id;
  const { stages } = history(model, start);
  const fate = element("ol", { class: "fate" });
  for (const stage of stages) {
    fate.append(element("li", {},
      element("a", { class: "pass", href: `#graph=${stage.graph}`,
        onclick: (event) => { event.preventDefault(); app.go(stage.graph); } }, stage.pass),
      element("span", {}, stage.text)));
  }
  const steps = graph >= 0 ? stepsOf(model, id, graph) : [];
  for (const step of steps) {
    fate.append(element("li", {}, element("span", { class: "pass" }, "plan"),
      element("span", {}, `computed by step ${step}, ${kernelName(model, step)}`)));
  }
  panel.append(section("History",
    fate.childElementCount ? fate : element("p", { class: "muted" }, "No pass changed it.")));
  for (const step of steps) panel.append(stepSection(app, step));
  const error = app.overlays.find((overlay) => overlay.key === "error");
  const value = error.missing || graph < 0 ? null : error.value(id, graph);
  if (value !== null) panel.append(section("Error", facts([["against float64", error.write(value)]])));
}

/** Return the nodes of the source graph that a node of a later one comes from. */
function originsOf(model, id, graph) {
  if (graph <= 0 || model.graphs[0].nodes.has(id)) return [];
  return [...related(model, id, graph, 0)].filter((other) => other !== id).slice(0, 40);
}

function chips(app, ids) {
  const shown = ids.slice(0, 24).map((id) => nodeLink(app, id));
  const more = ids.length > 24 ? element("span", { class: "muted" }, `and ${ids.length - 24} more`) : null;
  return element("div", { class: "chips" }, ...shown, more);
}

function kernelName(model, step) {
  const family = model.plan.steps[step].kernel;
  return `${"aeiou".includes(family[0]) ? "an" : "a"} ${family} kernel`;
}

function slotName(model, number) {
  const slot = model.plan.slots[number];
  const where = slot.offset === null ? "" : `, offset ${few(slot.offset, "B")}`;
  const name = slot.place === "arena" ? `s${number}` : slot.name;
  const size = typeof slot.size === "number" ? few(slot.size, "B") : `${slot.size} B`;
  return `${name} (${slot.place}, ${size}${where})`;
}

function stepSection(app, number) {
  const { model } = app;
  const step = model.plan.steps[number];
  const measured = model.evidence.profile?.steps.find((row) => row.step === number);
  const rows = [
    ["family", step.kernel],
    ["time", measured ? duration(measured.nanoseconds) : ""],
    ["memory traffic", typeof step.bytes === "number" ? few(step.bytes, "B") : `${step.bytes} B`],
    ["FLOPs", few(step.flops)],
    ["of peak", measured ? shares(measured) : ""],
    ["reads", step.reads.map((slot) => slotName(model, slot)).join("; ")],
    ["writes", step.writes.map((slot) => slotName(model, slot)).join("; ")],
    ["in place", step.writes.some((slot) => step.reads.includes(slot)) ? "yes" : ""],
    ["commits", number >= model.plan.commit ? "after the commit point" : ""],
  ];
  const made = section(`Step ${number}`, facts(rows));
  if (step.source !== null) {
    const text = model.plan.sources[step.source];
    const lines = text.split("\n").length;
    made.append(element("details", { class: "source" },
      element("summary", {}, `generated ${app.model.data.device.startsWith("cuda") ? "CUDA C" : "C"}, ${lines} lines`),
      element("pre", { class: "code" }, text)));
  }
  return made;
}

function shares(measured) {
  const rates = [];
  if (measured.bandwidth_share) {
    rates.push(`${Math.round(measured.bandwidth_share * 100)} % of ${measured.level || "memory"}'s bandwidth`);
  }
  if (measured.flops_share) rates.push(`${Math.round(measured.flops_share * 100)} % of FLOP/s`);
  return rates.join(", ");
}

/** Return what the panel says while nothing is selected. */
function overview(app) {
  const { model } = app;
  const graph = model.graphs[app.state.graph];
  const kinds = new Map();
  for (const [id, boxes] of app.view.boxesOf) {
    const style = boxes[0].role === ROLE.frame ? boxes[0].style : model.data.nodes.style[id];
    kinds.set(style, (kinds.get(style) ?? 0) + 1);
  }
  const rows = [...kinds].sort((a, b) => b[1] - a[1]).map(([style, count]) => element(
    "tr", {}, element("td", {}, swatch(model, style), model.styles.legend[style]),
    element("td", { class: "count" }, String(count)),
  ));
  const plan = model.plan;
  return element("div", {},
    element("h2", {}, model.data.title),
    element("p", { class: "muted" }, "Click a box to see where it comes from and what the passes did to it. Press ? for keys."),
    facts([
      ["made by", model.data.made_by], ["device", model.data.device],
      ["passes", model.passes.length || ""], ["steps", plan?.steps.length ?? ""],
      ["sizes", plan?.sizes ? Object.entries(plan.sizes).map(([k, v]) => `${k} = ${v}`).join(", ") : ""],
      ["arena", plan && plan.arena !== null ? few(plan.arena, "B") : ""],
    ]),
    section(`Boxes of "${graph.name}"`, element("table", { class: "kinds" }, ...rows)));
}
