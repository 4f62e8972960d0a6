// The panels about passes: which rules applied, which nearly did and why not; and measurements.

const PLACES = 6; // of one refusal that are listed at first

function renderRules(app, panel) {
  const { model } = app;
  panel.replaceChildren();
  if (!model.passes.length) {
    panel.append(empty("No passes", "This page shows a graph. Of a function, mg.show(f) has its compile."));
    return;
  }
  panel.append(element("h2", {}, "Rules"),
    element("p", { class: "muted" }, "The rewrites that each pass applied, and those that it refused."));
  const shownPass = model.graphs[app.state.graph].isPlan ? "lower" : model.graphs[app.state.graph].name;
  model.passes.forEach((record, index) => {
    const open = record.pass === shownPass || (!app.state.graph && index === 0);
    const busy = Object.keys(record.hits).length || record.refusals.length || record.notes.length || record.fallbacks.length;
    let counts = record.before === record.after
      ? `${record.before} nodes, ` : `${record.before} → ${record.after} nodes, `;
    if (!record.before) counts = "";
    const head = element("summary", {},
      element("span", { class: "pass" }, record.pass),
      element("span", { class: "muted" }, record.skipped ? "left out" : `${counts}${record.milliseconds.toFixed(1)} ms`),
      badge("hits", Object.values(record.hits).reduce((a, b) => a + b, 0), "applied"),
      badge("refused", record.refusals.length, "refused"),
      badge("refused", record.fallbacks.length, "without a kernel"));
    const body = element("div", { class: "rules" });
    const details = element("details", { class: busy ? "pass" : "pass idle", open: open && busy ? "" : null }, head, body);
    const fill = () => {
      if (!body.childElementCount) fillRules(app, body, record, index);
    };
    if (details.open) fill();
    details.addEventListener("toggle", fill);
    panel.append(details);
  });
}

function badge(kind, count, word) {
  return count ? element("span", { class: `badge ${kind}` }, `${count} ${word}`) : null;
}

function fillRules(app, body, record, index) {
  if (record.graph >= 0) {
    body.append(element("button", { class: "quiet", onclick: () => app.go(record.graph) }, "show the graph after it"));
  }
  const made = app.model.data.moves;
  for (const [rule, count] of Object.entries(record.hits)) {
    const nodes = new Set();
    for (let i = 0; i < made.old.length && nodes.size < 200; i++) {
      if (made.pass[i] === index && app.model.text(made.rule[i]) === rule) nodes.add(made.new[i]);
    }
    body.append(element("div", { class: "rule hit" },
      element("b", {}, rule), element("span", { class: "muted" }, count > 1 ? ` × ${count}` : ""),
      nodes.size ? chips(app, [...nodes]) : null));
  }
  const groups = new Map();
  for (const refusal of record.refusals) append(groups, `${refusal.rule}\n${refusal.reason}`, refusal);
  for (const [key, refusals] of groups) {
    const [rule, reason] = key.split("\n");
    const places = refusals.slice(0, PLACES).map((refusal) => element("div", { class: "place" },
      refusal.node_id >= 0 ? nodeLink(app, refusal.node_id) : element("span", {}, refusal.node),
      element("span", { class: "muted" }, refusal.line ? ` ${refusal.line.replace(/.*\//, "")}` : ""),
      element("span", { class: "muted" }, refusal.group ? ` in ${refusal.group}` : ""),
      refusal.other ? element("div", { class: "muted" }, `with ${refusal.other}`) : null,
      refusal.obstacle ? element("div", { class: "muted" }, `between them ${refusal.obstacle}`) : null));
    const more = refusals.length - PLACES;
    body.append(element("div", { class: "rule refused" },
      element("b", {}, rule), element("span", {}, ` refused: ${reason}`), ...places,
      more > 0 ? element("div", { class: "muted" }, `and ${more} more`) : null));
  }
  const ways = new Map();
  for (const fallback of record.fallbacks) append(ways, `${fallback.way}\n${fallback.reason}`, fallback);
  for (const [key, fallbacks] of ways) {
    const [way, reason] = key.split("\n");
    const places = fallbacks.slice(0, PLACES).map((fallback) => element("div", { class: "place" },
      fallback.node_id >= 0 ? nodeLink(app, fallback.node_id) : element("span", {}, fallback.node),
      element("span", { class: "muted" }, ` step ${fallback.step}`)));
    const more = fallbacks.length - PLACES;
    body.append(element("div", { class: "rule refused" },
      element("b", {}, way), element("span", {}, `: ${reason}`), ...places,
      more > 0 ? element("div", { class: "muted" }, `and ${more} more`) : null));
  }
  for (const note of record.notes) body.append(element("div", { class: "rule note" }, note));
  for (const repair of record.repairs) body.append(element("div", { class: "rule note" }, `repair: ${repair}`));
  if (!body.childElementCount) body.append(element("p", { class: "muted" }, "Nothing to do."));
}

function empty(title, text) {
  return element("div", { class: "empty" }, element("h3", {}, title), element("p", {}, text));
}

const HOW = "from magmagraph.inspect.evidence import evidence\nmg.show(f, evidence=evidence(f, *feeds)).save(\"f.html\")";

function renderEvidence(app, panel) {
  const { model } = app;
  const { profile, check, ablate } = model.evidence;
  panel.replaceChildren(element("h2", {}, "Measurements"));
  if (!profile && !check && !ablate) {
    panel.append(empty("Nothing was measured", "Times, errors and ablations are shown here when the page is made with them:"),
      element("pre", { class: "code" }, HOW));
    return;
  }
  if (profile) panel.append(profileSection(app, profile));
  if (check) panel.append(checkSection(app, check));
  if (ablate) panel.append(ablateSection(ablate));
}

function table(head, rows, left = []) {
  const cell = (tag, value, i) => element(tag, {
    class: left.includes(i) ? "left" : "count", scope: tag === "th" ? "col" : null,
  }, value ?? "");
  return element("div", { class: "wide", tabindex: 0 }, element("table", {},
    element("thead", {}, element("tr", {}, ...head.map((text, i) => cell("th", text, i)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((v, i) => cell("td", v, i)))))));
}

function profileSection(app, profile) {
  const slowest = [...profile.steps].sort((a, b) => b.nanoseconds - a.nanoseconds).slice(0, 20);
  const whole = profile.nanoseconds || profile.steps.reduce((a, s) => a + s.nanoseconds, 0);
  const link = (step) => nodeLink(app, app.model.plan.steps[step.step].node, `${step.step} ${step.kernel}`);
  const part = (share) => (typeof share === "number" ? `${Math.round(share * 100)} %` : "");
  const made = section(`Time: ${duration(whole)}`, table(
    ["step", "time", "share", "level", "bandwidth", "FLOP/s"],
    slowest.map((s) => [link(s), duration(s.nanoseconds), part(s.nanoseconds / whole),
      s.level, part(s.bandwidth_share), part(s.flops_share)]), [0, 3]));
  if (slowest.some((s) => s.level)) {
    made.append(element("p", { class: "muted" },
      "Level: where most of a step's bytes lie; bandwidth is that level's."));
  }
  return made;
}

function checkSection(app, check) {
  const write = (error) => (typeof error === "number" ? error.toExponential(1) : error);
  const made = section(check.ok ? "Errors: rounding explains them" : "Errors: not explained by rounding", table(
    ["after", "error", "allowed", "where"],
    check.measures.map((m) => [m.name, write(m.error), write(m.allowed), m.where]), [0, 3]));
  if (check.blame) {
    made.append(element("div", { class: "rule refused" }, element("b", {}, `${check.blame.name}: ${check.blame.rule}`),
      element("pre", { class: "code" }, check.blame.text)));
  }
  for (const note of [...check.repairs, ...check.notes]) made.append(element("div", { class: "rule note" }, note));
  return made;
}

function ablateSection(ablate) {
  // A panel is narrow: what changes nothing is a dash, and the factor stands in the verdict alone.
  const written = (verdict) => (verdict === "changes nothing" ? "–" : verdict.replace(/x$/, "×"));
  return section("Ablation: without each pass", table(
    ["without", "time", "memory", "steps", "the pass"],
    ablate.rows.map((row, i) => (row.error
      ? [row.name, row.error, "", "", ""]
      : [i ? row.name : "nothing", duration(row.nanoseconds), few(row.bytes, "B"), String(row.steps),
        written(row.verdict)])), [0, 4]));
}
