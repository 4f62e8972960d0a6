// What runs: states on the boxes, numbers, errors and outputs in the panels.

// State -> its sign and colour. The colours are those of Okabe and Ito; the signs tell them apart, too.
const STATES = {
  waiting: ["○", APART[7]], running: ["▶", APART[4]], retried: ["↻", APART[1]], done: ["✓", APART[2]],
  failed: ["✕", APART[5]], stopped: ["■", APART[3]], skipped: ["–", APART[7]],
};

/** Return a time for people. */
function seconds(count) {
  if (count < 60) return `${count.toFixed(1)} s`;
  const whole = Math.floor(count);
  const rest = `${String(Math.floor(whole / 60) % 60).padStart(2, "0")} min ${String(whole % 60).padStart(2, "0")} s`;
  return whole < 3600 ? rest : `${Math.floor(whole / 3600)} h ${rest}`;
}

const counted = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

function stateMark(state) {
  const made = element("span", { class: "state" }, `${STATES[state][0]} ${state}`);
  made.style.setProperty("--colour", STATES[state][1]);
  return made;
}

function elapsed(flow, { start, end }) {
  return start === null ? "" : seconds((end ?? flow.now.seconds) - start);
}

function showStates(flow) {
  const all = flow.now.modules ?? {};
  for (const box of $("boxes").children) {
    const module = flow.module(box.dataset.name);
    if (!module) continue;
    const live = all[module.name];
    const [sign, colour] = live ? STATES[live.state] : ["", ""];
    box.querySelector(".sign").textContent = sign;
    if (colour) box.style.setProperty("--colour", colour);
    else box.style.removeProperty("--colour");
    const copies = live && live.copies > 1 ? `${live.counts.done ?? 0}/${live.copies} copies` : "";
    const turns = live && live.iterations > 1 ? `${live.iterations_done}/${live.iterations * live.copies} iterations` : "";
    const still = module.copies > 1 ? `${module.copies} copies` : "";
    const text = live ? [live.state, copies, turns, elapsed(flow, live)].filter(Boolean).join(" · ") : still;
    box.querySelector(".counts").textContent = text;
    box.setAttribute("aria-label", [module.name, module.about, module.after.length ? `after ${module.after.join(", ")}` : "", text]
      .filter(Boolean).join(", "));
  }
  const { ok, turn, turns, seconds: time } = flow.now;
  $("clock").textContent = flow.now.modules
    ? [turns > 1 ? `iteration ${turn + 1} of ${turns}` : "", ok === null ? "running" : ok ? "done" : "not done", seconds(time)]
      .filter(Boolean).join(" · ") : "";
  const used = Object.keys(STATES).map((state) => [state, Object.values(all).filter((module) => module.state === state).length]);
  $("legend").hidden = !flow.now.modules;
  $("legend").replaceChildren(...used.map(([state, count]) => {
    const made = element("span", { class: "entry" }, element("span", { class: "sign" }, STATES[state][0]), `${state} ${count}`);
    made.style.setProperty("--colour", STATES[state][1]);
    return made;
  }));
  showModule(flow, all[flow.selected]);
  showRun(flow, all);
}

/** Replace what a panel shows, unless it shows it already: a selection of text stays. */
function fill(place, ...children) {
  const made = element("div", {}, ...children);
  if (place.innerHTML !== made.outerHTML) place.replaceChildren(made);
}

function showModule(flow, live) {
  if (!live) {
    fill($("live"));
    return;
  }
  const numbers = Object.entries(live.counts).map(([state, count]) => `${count} ${state}`).join(", ");
  fill($("live"), element("h2", {}, flow.selected, stateMark(live.state)), facts([
    ["copies", live.copies > 1 ? numbers : ""],
    ["iterations", live.iterations > 1 ? `${live.iterations_done} of ${live.iterations * live.copies}` : ""],
    ["ranks", live.ranks.join(" ")], ["started", live.start === null ? "" : `after ${seconds(live.start)}`],
    ["elapsed", elapsed(flow, live)], ["attempts", live.attempts > 1 ? String(live.attempts) : ""],
  ]),
  ...live.failures.map(({ copy, iteration, ranks, cause }) => section(
    `Failed: copy ${copy}, iteration ${iteration}, rank ${ranks.join(" ")}`, element("pre", { class: "code" }, cause))),
  ...live.causes.map((cause) => section("Why", element("pre", { class: "code" }, cause))),
  ...flow.now.outputs.map(({ name, text }) => section(name, element("pre", { class: "code" }, text || "(nothing yet)"))));
}

function showRun(flow, all) {
  if (!flow.now.modules) {
    fill($("progress"), element("p", { class: "muted" }, "Nothing runs."));
    return;
  }
  const cell = (...held) => element("td", {}, ...held);
  const head = (...names) => element("tr", {}, ...names.map((name) => element("th", { class: "left", scope: "col" }, name)));
  const wide = (name, ...rows) => element("div", { class: "wide", tabindex: 0, role: "group", "aria-label": name },
    element("table", {}, ...rows));
  const rows = Object.entries(all).map(([name, live]) => element("tr", {}, cell(name), cell(stateMark(live.state)),
    cell(`${live.counts.done ?? 0}/${live.copies}`), cell(`${live.iterations_done}/${live.iterations * live.copies}`),
    cell(live.ranks.slice(0, 8).join(" ")), cell(elapsed(flow, live))));
  const busy = flow.now.workers.map(([rank, module, copy, iteration, start]) => element("tr", {}, cell(String(rank)), cell(module),
    cell(String(copy)), cell(String(iteration)), cell(seconds(Math.max(0, flow.now.seconds - start)))));
  fill($("progress"), section("Modules", wide("modules", head("module", "state", "copies", "iterations", "ranks", "elapsed"), ...rows)),
    section("Workers", busy.length ? wide("workers", head("rank", "module", "copy", "iteration", "for"), ...busy)
      : element("p", { class: "muted" }, "No worker is busy.")),
    flow.now.ended ? section("End", element("pre", { class: "code" }, flow.now.ended)) : null,
    flow.now.printed ? section("Output", element("pre", { class: "code" }, flow.now.printed)) : null);
}

/** Return the form that starts the workflow. */
function startForm(flow) {
  const executor = element("select", { name: "executor" }, ...flow.executors.map((name) => element("option", { value: name }, name)));
  executor.value = "process";
  const workers = element("input", { type: "text", inputmode: "numeric", name: "workers", autocomplete: "off",
    placeholder: "the cores of this machine" });
  const start = (event) => {
    event.preventDefault();
    const count = workers.value.trim();
    flow.queue(async () => {
      const found = await ask("run", { executor: executor.value, workers: count ? Number(count) : null });
      flow.say(found.refused ?? "");
      await flow.look();
    });
  };
  return element("form", { "aria-label": "run", onsubmit: start }, element("label", {}, "executor", executor),
    element("label", {}, "workers", workers),
    element("div", { class: "actions" }, element("button", { id: "go", class: "main" }, "Run the saved file"),
      element("button", { id: "stop", type: "button", onclick: () => flow.queue(() => ask("stop", {})) }, "Stop")));
}
