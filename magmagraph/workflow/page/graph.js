// Modules as buttons, dependencies as lines: drawn where the server has placed them.

function drawn(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** Return a path through points, from above to below. */
function curve(points) {
  let text = `M ${points[0].join(" ")}`;
  for (let i = 1; i < points.length; i++) {
    const [[x, y], [u, v]] = [points[i - 1], points[i]];
    text += ` C ${x} ${(y + v) / 2} ${u} ${(y + v) / 2} ${u} ${v}`;
  }
  return text;
}

function drawGraph(flow) {
  const { width, height, modules, edges } = flow.draft;
  const focus = document.activeElement?.dataset?.name;
  $("graph").style.width = `${width}px`;
  $("graph").style.height = `${height}px`;
  $("edges").replaceChildren(...edges.map((edge) => drawEdge(flow, edge)));
  const top = [...modules].sort((a, b) => a.y - b.y || a.x - b.x);
  $("boxes").replaceChildren(...top.map((module) => boxButton(flow, module)), ...(flow.editing ? top.map((m) => dragHandle(flow, m)) : []));
  $("empty").hidden = modules.length > 0;
  $("empty").textContent = flow.editing ? "No modules yet: Add module, or write TOML" : "No modules";
  if (focus) boxOf(flow, focus)?.focus();
}

function boxOf(flow, name) {
  return [...$("boxes").children].find((box) => box.dataset.name === name && box.tagName === "BUTTON");
}

function boxButton(flow, module) {
  const made = element("button", { class: "box", "data-name": module.name, "aria-pressed": module.name === flow.selected,
    title: module.about, onclick: () => flow.select(module.name) },
    element("span", { class: "first" }, element("span", { class: "sign", "aria-hidden": "true" }), element("span", {}, module.name)),
    element("span", { class: "about" }, module.about), element("span", { class: "counts" }));
  for (const [name, value] of [["left", module.x], ["top", module.y], ["width", module.width], ["minHeight", module.height]]) {
    made.style[name] = `${value}px`;
  }
  return made;
}

/** Return what a dependency is drawn with: dragged to the module that comes after. */
function dragHandle(flow, module) {
  const made = element("div", { class: "handle", "aria-hidden": "true", "data-from": module.name,
    title: "drag to the module that comes after this one" });
  const start = [module.x + module.width / 2, module.y + module.height];
  made.style.left = `${start[0]}px`;
  made.style.top = `${start[1]}px`;
  let line = null;
  const target = (event) => document.elementsFromPoint(event.clientX, event.clientY).find((one) => one.closest(".box"))?.closest(".box");
  made.addEventListener("pointerdown", (event) => {
    made.setPointerCapture(event.pointerId);
    line = drawn("path", { class: "drawn" });
    $("edges").append(line);
  });
  made.addEventListener("pointermove", (event) => {
    if (!line) return;
    const { left, top } = $("graph").getBoundingClientRect();
    line.setAttribute("d", curve([start, [event.clientX - left, event.clientY - top]]));
    const over = target(event);
    for (const box of $("boxes").children) box.classList.toggle("target", box === over && box.dataset.name !== module.name);
  });
  const end = (event) => {
    if (!line) return;
    line.remove();
    line = null;
    for (const box of $("boxes").children) box.classList.remove("target");
    const to = event.type === "pointerup" && target(event)?.dataset.name;
    if (to && to !== module.name) flow.link(module.name, to);
  };
  made.addEventListener("pointerup", end);
  made.addEventListener("pointercancel", end);
  return made;
}

function drawEdge(flow, { from, to, points }) {
  const chosen = flow.edge?.[0] === from && flow.edge?.[1] === to;
  const group = drawn("g", { class: chosen ? "chosen" : "" });
  const [x, y] = points.at(-1);
  const way = curve([...points.slice(0, -1), [x, y - 6]]);
  const hit = drawn("path", { class: "hit", d: way, role: "button", tabindex: 0, "aria-label": `dependency: ${to} after ${from}`,
    "data-edge": `${from} ${to}` });
  const choose = () => {
    flow.edge = [from, to];
    flow.selected = null;
    flow.adding = false;
    flow.show("module");
    flow.render();
  };
  hit.addEventListener("click", choose);
  hit.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") choose();
    if (event.key === "Delete" && flow.editing) flow.link(from, to, false);
    if (["Enter", " ", "Delete"].includes(event.key)) { event.preventDefault(); event.stopPropagation(); }
  });
  const tip = drawn("path", { class: "tip", d: `M ${x - 4.5} ${y - 8} h 9 L ${x} ${y} Z` });
  group.append(hit, drawn("path", { class: "edge", d: way }), tip);
  return group;
}
