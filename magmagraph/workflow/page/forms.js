// Forms of a module, of the workflow and of the store: a field for each key that the file may have.

function showForms(flow) {
  const { tables } = flow.draft;
  const module = flow.module(flow.selected);
  const form = $("form");
  if (flow.edge) form.replaceChildren(dependencyPanel(flow));
  else if (!flow.editing) form.replaceChildren();
  else if (flow.adding || module) form.replaceChildren(moduleForm(flow, module));
  else form.replaceChildren(element("p", { class: "muted" }, "Choose a module, or add one. To let a module come after another, "
    + "drag from the dot below the first one, or check its name in the form of the second."));
  if (!flow.editing) return;
  $("workflow").replaceChildren(...["workflow", "store"].map((name) => keyForm(flow, `[${name}]`, flow.fields[name], tables[name] ?? {},
    (set) => flow.change({ table: [name], set }))));
}

function dependencyPanel(flow) {
  const [from, to] = flow.edge;
  return element("div", {}, element("h2", {}, `${to} after ${from}`),
    element("p", {}, `${to} starts when all copies of ${from} are done.`),
    flow.editing ? element("div", { class: "actions" },
      element("button", { onclick: () => flow.link(from, to, false) }, "Remove dependency")) : null);
}

function moduleForm(flow, module) {
  const title = module ? module.name : "New module";
  const values = { ...module?.values, name: module?.name ?? "", after: module?.after ?? [] };
  const fields = [{ key: "name", kind: "text", need: "letters, digits, _ and -" }, ...flow.fields.modules];
  const made = keyForm(flow, title, fields, values, ({ name, ...set }) => {
    const to = name ?? values.name;
    const wish = { table: ["modules", module?.name ?? to], set, rename: to };
    if (module || !flow.module(to)) flow.change(wish, () => flow.select(to));
    else flow.say(`There is a module ${to} already.`);
  });
  if (module) {
    const remove = () => flow.remove(module.name);
    made.querySelector(".actions").append(element("button", { type: "button", onclick: remove }, "Remove module"));
  }
  return made;
}

/** Return a form of some keys; `apply` gets those that were changed, as they are typed. */
function keyForm(flow, title, fields, values, apply) {
  const inputs = fields.map((field) => [field, keyField(flow, field, values[field.key] ?? "", title)]);
  return element("form", { "aria-label": title, onsubmit: (event) => {
    event.preventDefault();
    const set = {};
    for (const [{ key }, input] of inputs) {
      const given = input.typed();
      if (String(given) !== String(values[key] ?? "")) set[key] = given;
    }
    apply(set);
  } }, element("h2", {}, title), ...inputs.map(([, input]) => input),
  element("div", { class: "actions" }, element("button", { class: "main" }, "Apply")));
}

function keyField(flow, { key, kind, need, default: standard }, value, title) {
  if (key === "after") return afterBoxes(flow, value || [], title);
  let input = element("input", { type: "text", name: key, placeholder: standard || need, title: need, "aria-description": need,
    autocomplete: "off", spellcheck: "false" });
  if (kind === "failure") {
    input = element("select", { name: key }, ...["", "stop", "continue"].map((one) => element("option", { value: one }, one || "(stop)")));
  }
  input.value = value;
  const made = element("label", {}, key, input);
  made.typed = () => input.value.trim();
  return made;
}

function afterBoxes(flow, after, title) {
  const others = flow.draft.modules.map((module) => module.name).filter((name) => name !== title);
  const boxes = others.map((name) => element("input", { type: "checkbox", name: "after", value: name,
    checked: after.includes(name) ? "" : null }));
  const made = element("fieldset", {}, element("legend", {}, "after"), ...boxes.map((box, i) => element("label", {}, box, others[i])),
    others.length ? null : element("span", { class: "muted" }, "no other module"));
  made.typed = () => boxes.filter((box) => box.checked).map((box) => box.value);
  return made;
}
