// What can be laid over the graph in place of the colours of kinds.

/** Write a number in three digits, without an exponent. */
function digits(value) {
  const text = value.toPrecision(3);
  return text.includes("e") ? String(Math.round(value)) : text;
}

/** Write a number in few characters: 12.3 k. */
function few(value, unit = "") {
  if (typeof value !== "number") return String(value);
  if (value === 0) return `0${unit ? ` ${unit}` : ""}`;
  const sizes = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
  const [size, prefix] = sizes.find(([s]) => Math.abs(value) >= s) ?? [1, ""];
  const text = digits(value / size);
  const short = text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  return prefix || unit ? `${short} ${prefix}${unit}` : short;
}

/** Write a time given in nanoseconds. */
function duration(nanoseconds) {
  if (nanoseconds >= 1e9) return `${digits(nanoseconds / 1e9)} s`;
  if (nanoseconds >= 1e6) return `${digits(nanoseconds / 1e6)} ms`;
  if (nanoseconds >= 1e3) return `${digits(nanoseconds / 1e3)} µs`;
  return `${Math.round(nanoseconds)} ns`;
}

const NO_PLAN = "there is no plan: this page shows a graph alone";
const NO_SIZES = "sizes are not bound: call the function once before it is shown";
const NO_PROFILE = "nothing was profiled: mg.show(f, evidence=evidence(f, *feeds))";
const NO_CHECK = "nothing was checked: mg.show(f, evidence=evidence(f, *feeds))";

/** Return the overlays: {key, title, missing, value(id, graph), write, sorts}. */
function makeOverlays(model) {
  const plan = model.plan;
  const profile = model.evidence?.profile;
  const check = model.evidence?.check;
  const times = new Map((profile?.steps ?? []).map((step) => [step.step, step]));
  const bound = plan?.steps.every((step) => typeof step.bytes === "number");

  const ofStep = (read) => (id, graph) => {
    const values = stepsOf(model, id, graph).map(read).filter((v) => v !== null && v !== undefined);
    return values.length ? values.reduce((a, b) => a + b, 0) : null;
  };
  const errors = errorsOf(check);
  return [
    { key: "kind", title: "Kind", missing: "", sorts: null, value: null, write: String },
    {
      key: "time", title: "Time", missing: profile ? "" : NO_PROFILE, write: duration,
      value: ofStep((step) => times.get(step)?.nanoseconds),
      about: "of the kernel that computes it",
    },
    {
      key: "bytes", title: "Bytes", missing: !plan ? NO_PLAN : bound ? "" : NO_SIZES,
      value: ofStep((step) => plan.steps[step].bytes), write: (v) => few(v, "B"),
      about: "that the kernel moves",
    },
    {
      key: "flops", title: "FLOPs", missing: !plan ? NO_PLAN : bound ? "" : NO_SIZES,
      value: ofStep((step) => plan.steps[step].flops), write: (v) => few(v),
      about: "of the kernel that computes it",
    },
    {
      key: "error", title: "Error", missing: check ? "" : NO_CHECK,
      value: (id) => errors.get(id) ?? null, write: (v) => v.toExponential(1),
      logarithmic: true, about: "relative to float64",
    },
    {
      key: "dtype", title: "dtype", missing: "", sorts: true, write: String,
      value: (id) => model.type(id).replace(/\[.*/s, ""), about: "of the value",
    },
    {
      key: "stream", title: "Stream", missing: profile ? "" : NO_PROFILE, sorts: true,
      value: (id, graph) => {
        const step = stepsOf(model, id, graph)[0];
        return step === undefined ? null : `stream ${times.get(step)?.stream ?? 0}`;
      },
      write: String, about: "that the kernel runs on",
    },
  ];
}

/** Return the error of each node that was compared: each pass lists those that are new. */
function errorsOf(check) {
  const rows = check ? [...check.nodes, ...check.passes.flatMap((pass) => pass.nodes)] : [];
  return new Map(rows.map((row) => [row.node, row.error === "inf" ? Infinity : row.error]));
}

/** Return the least and the most that an overlay has, in the source and in the plan: one scale for all graphs. */
function rangeOf(overlay, model) {
  if (overlay.range) return overlay.range;
  const found = overlay.sorts ? new Set() : [];
  for (const graph of new Set([0, model.graphs.length - 1])) {
    const inside = model.data.nodes.inside;
    const nodes = model.graphs[graph].nodes;
    for (let id = 0; id < model.count; id++) {
      if (!nodes.has(inside[id] >= 0 ? inside[id] : id)) continue;
      const value = overlay.value(id, graph);
      if (value === null || value === undefined) continue;
      if (overlay.sorts) found.add(value);
      else if (Number.isFinite(value) && (!overlay.logarithmic || value > 0)) found.push(value);
    }
  }
  overlay.range = overlay.sorts ? { sorts: [...found].sort() } : {
    least: found.reduce((a, b) => Math.min(a, b), found.length ? Infinity : 0),
    most: found.reduce((a, b) => Math.max(a, b), 0),
  };
  return overlay.range;
}

/** Return {colour(id), legend} of an overlay on one graph; colours mean the same in all of them. */
function overlayColours(overlay, model, graph, ids) {
  if (!overlay.value) return null;
  const values = new Map();
  for (const id of ids) {
    const value = overlay.value(id, graph);
    if (value !== null && value !== undefined) values.set(id, value);
  }
  const range = rangeOf(overlay, model);
  if (overlay.sorts) {
    const shown = new Set(values.values());
    const sorts = [...range.sorts, ...[...shown].filter((sort) => !range.sorts.includes(sort))];
    const colours = new Map(sorts.map((sort, i) => [sort, APART[i % APART.length]]));
    return {
      values, colour: (id) => (values.has(id) ? colours.get(values.get(id)) : null),
      legend: sorts.filter((sort) => shown.has(sort)).map((sort) => [sort, colours.get(sort)]),
    };
  }
  const scale = overlay.logarithmic ? Math.log10 : (v) => v;
  const { least, most } = range;
  const low = overlay.logarithmic ? scale(least) : 0;
  const high = scale(most);
  const share = (v) => {
    if (!Number.isFinite(v)) return 1;
    if (overlay.logarithmic && v <= 0) return 0;
    return high > low ? Math.min(1, Math.max(0, (scale(v) - low) / (high - low))) : 1;
  };
  return {
    values, colour: (id) => (values.has(id) ? scaled(share(values.get(id))) : null),
    legend: [
      [overlay.write(overlay.logarithmic ? least : 0), scaled(0)],
      ["", scaled(0.25)], ["", scaled(0.5)], ["", scaled(0.75)],
      [overlay.write(most), scaled(1)],
    ],
  };
}
