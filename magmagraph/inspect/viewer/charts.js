// The drawer at the bottom: when kernels run, and what lies in memory when.

const LABEL_WIDTH = 84;
const CHART_TOP = 18;
const ALIGNMENT = 64; // bytes that slots of the arena begin at a multiple of

class Chart {
  constructor(canvas, tip, app) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.tip = tip;
    this.app = app;
    this.bars = [];
    canvas.addEventListener("mousemove", (event) => this.point(event));
    canvas.addEventListener("mouseleave", () => { tip.hidden = true; });
    canvas.addEventListener("click", (event) => {
      const bar = this.at(event);
      if (bar && bar.node >= 0) this.app.select(bar.node, true);
    });
  }

  at(event) {
    return this.bars.findLast((bar) => event.offsetX >= bar.x - 1 && event.offsetX <= bar.x + bar.width + 1
      && event.offsetY >= bar.y && event.offsetY <= bar.y + bar.height);
  }

  point(event) {
    const bar = this.at(event);
    this.canvas.style.cursor = bar && bar.node >= 0 ? "pointer" : "default";
    this.tip.hidden = !bar;
    if (!bar) return;
    this.tip.textContent = bar.text;
    const left = Math.min(event.clientX + 14, innerWidth - this.tip.offsetWidth - 8);
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${Math.max(4, event.clientY - this.tip.offsetHeight - 10)}px`;
  }

  begin() {
    const ratio = devicePixelRatio || 1;
    const { clientWidth: wide, clientHeight: high } = this.canvas;
    this.canvas.width = Math.round(wide * ratio);
    this.canvas.height = Math.round(high * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.fillStyle = this.app.theme.paper;
    this.context.fillRect(0, 0, wide, high);
    this.bars = [];
    return { wide, high };
  }

  /** Write a text; `align` as of a canvas. */
  write(text, x, y, align = "left", colour = this.app.theme.muted) {
    this.context.font = `11px ${FONT}`;
    this.context.fillStyle = colour;
    this.context.textAlign = align;
    this.context.fillText(text, x, y);
  }

  bar(bar, colour, chosen) {
    const { context } = this;
    context.fillStyle = colour;
    context.fillRect(bar.x, bar.y, Math.max(1, bar.width), bar.height);
    if (chosen) {
      context.strokeStyle = this.app.theme.accent;
      context.lineWidth = 2.5;
      context.strokeRect(bar.x, bar.y, Math.max(1, bar.width), bar.height);
    }
    this.bars.push(bar);
    const room = Math.floor((bar.width - 8) / 6.7);
    if (bar.name && room >= 2 && bar.height >= 13) {
      const text = bar.name.length > room ? `${bar.name.slice(0, room - 1)}…` : bar.name;
      this.write(text, bar.x + 4, bar.y + bar.height / 2 + 4, "left", inkOn(colour));
    }
  }
}

/** Return why there is no timeline, or nothing. */
function timelineMissing(model) {
  if (!model.plan) return "There is no plan: this page shows a graph alone.";
  if (!model.evidence.profile) return "Nothing was profiled. mg.show(f, evidence=evidence(f, *feeds)) measures it.";
  return "";
}

/** Return how many streams the kernels run on. */
function streamsOf(model) {
  return new Set(model.evidence.profile.steps.map((step) => step.stream ?? 0)).size;
}

/** Return round numbers from 0 up to an end, in so many steps at most: 1, 2 or 5 times a power of 10. */
function ticks(end, most) {
  const least = Math.max(1, end) / most;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= least * (1 - 1e-9));
  return Array.from({ length: Math.floor(end / step + 1e-9) + 1 }, (_, i) => i * step);
}

function drawTimeline(chart, app) {
  const { model, theme } = app;
  const all = [...model.evidence.profile.steps].sort((a, b) => b.nanoseconds - a.nanoseconds);
  chart.canvas.setAttribute("aria-label", `timeline of ${all.length} steps; the longest: `
    + all.slice(0, 3).map((s) => `step ${s.step}, ${s.kernel}, ${duration(s.nanoseconds)}`).join("; "));
  const { wide } = chart.begin();
  const steps = model.evidence.profile.steps;
  let end = 0;
  const bars = steps.map((step) => {
    const begin = step.begin ?? end;
    end = Math.max(end, begin + step.nanoseconds);
    return { step, begin, stream: step.stream ?? 0 };
  });
  const streams = [...new Set(bars.map((bar) => bar.stream))].sort((a, b) => a - b);
  const width = wide - LABEL_WIDTH - 16;
  const families = [...new Set(steps.map((step) => step.kernel))].sort();
  const chosen = new Set(app.chosenSteps());
  streams.forEach((stream, row) => {
    const y = CHART_TOP + 6 + row * 30;
    chart.write(`stream ${stream}`, 12, y + 16);
    chart.context.fillStyle = theme.faint;
    chart.context.fillRect(LABEL_WIDTH, y, width, 24);
  });
  for (const { step, begin, stream } of bars) {
    chart.bar({
      x: LABEL_WIDTH + (begin / end) * width, width: Math.max(1, (step.nanoseconds / end) * width - 0.5),
      y: CHART_TOP + 6 + streams.indexOf(stream) * 30, height: 24,
      name: `${step.step} ${step.kernel}`, node: model.plan.steps[step.step].node,
      text: `step ${step.step}, ${step.kernel}: ${duration(step.nanoseconds)}\n${(step.operations ?? []).join(", ")}`
        + `${step.lines?.length ? `\n${step.lines.slice(0, 4).map((l) => l.replace(/.*\//, "")).join(", ")}` : ""}`,
    }, APART[families.indexOf(step.kernel) % APART.length], chosen.has(step.step));
  }
  const bottom = CHART_TOP + 12 + streams.length * 30;
  for (const time of ticks(end, Math.max(1, Math.floor(width / 140)))) {
    const x = LABEL_WIDTH + (time / end) * width;
    const align = x > LABEL_WIDTH + width - 24 ? "right" : time ? "center" : "left";
    chart.write(duration(time), x, CHART_TOP - 4, align);
  }
  let x = LABEL_WIDTH;
  families.forEach((family, i) => {
    chart.context.fillStyle = APART[i % APART.length];
    chart.context.fillRect(x, bottom + 4, 10, 10);
    chart.write(family, x + 15, bottom + 13);
    x += 34 + family.length * 6.7;
  });
  if (streams.length > 1 && steps.every((step) => step.begin === undefined)) {
    chart.write("measured one by one: in a run, steps of several streams overlap", x + 10, bottom + 13);
  }
}

function memoryMissing(model) {
  if (!model.plan) return "There is no plan: this page shows a graph alone.";
  if (model.plan.arena === null) return "Sizes are not bound. Call the function once before it is shown.";
  return "";
}

/** Return the live bytes of the arena in each step. */
function liveBytes(plan) {
  const live = plan.steps.map(() => 0);
  for (const slot of plan.slots) {
    if (slot.place !== "arena") continue;
    const size = Math.ceil(slot.size / ALIGNMENT) * ALIGNMENT;
    for (let i = Math.max(0, slot.first); i <= Math.min(slot.last, live.length - 1); i++) live[i] += size;
  }
  return live;
}

function drawMemory(chart, app) {
  const { model, theme } = app;
  const { plan } = model;
  const { wide, high } = chart.begin();
  const count = Math.max(1, plan.steps.length);
  const width = wide - LABEL_WIDTH - 16;
  const sums = inLines(sumsOfPlaces(plan), width);
  const height = high - CHART_TOP - 20 - 14 * sums.length;
  const x = (step) => LABEL_WIDTH + (step / count) * width;
  const arena = Math.max(1, plan.arena);
  const y = (byte) => CHART_TOP + (byte / arena) * height;
  chart.context.fillStyle = theme.faint;
  chart.context.fillRect(LABEL_WIDTH, CHART_TOP, width, height);
  const live = liveBytes(plan);
  const peak = live.reduce((best, bytes, i) => (bytes > live[best] ? i : best), 0);
  chart.canvas.setAttribute("aria-label", `memory over ${count} steps: an arena of ${few(plan.arena, "B")}, `
    + `at most ${few(live[peak] ?? 0, "B")} alive, in step ${peak}; ${sumsOfPlaces(plan).join(", ")}`);
  if (plan.arena) {
    chart.context.fillStyle = mixRgb(theme.dropped, theme.paper, 0.25);
    chart.context.fillRect(x(peak), CHART_TOP, Math.max(2, width / count), height);
  }
  const chosen = new Set(app.chosenSteps().flatMap((step) => plan.steps[step].writes));
  plan.slots.forEach((slot, number) => {
    if (slot.place !== "arena" || slot.offset === null) return;
    const owners = slot.nodes.map((node) => model.describe(node));
    const use = owners.length ? owners.join(", ") : "workspace";
    chart.bar({
      x: x(Math.max(0, slot.first)), width: x(Math.min(slot.last, count - 1) + 1) - x(Math.max(0, slot.first)) - 1,
      y: y(slot.offset), height: Math.max(1.5, (slot.size / arena) * height - 1), name: owners.length ? use : "workspace",
      node: slot.nodes[0] ?? -1,
      text: `s${number}: ${few(slot.size, "B")} at ${few(slot.offset, "B")}, steps ${slot.first} to ${slot.last}\n${use}`,
    }, APART[number % APART.length], chosen.has(number));
  });
  chart.write("0 B", LABEL_WIDTH - 8, CHART_TOP + 10, "right");
  chart.write(few(plan.arena, "B"), LABEL_WIDTH - 8, CHART_TOP + height, "right");
  chart.write(`step 0`, LABEL_WIDTH, CHART_TOP + height + 14);
  chart.write(`step ${count - 1}`, LABEL_WIDTH + width, CHART_TOP + height + 14, "right");
  if (plan.arena) {
    const at = Math.min(Math.max(x(peak), LABEL_WIDTH + 120), LABEL_WIDTH + width - 120);
    chart.write(`peak: ${few(live[peak], "B")} in step ${peak}`, at, CHART_TOP - 5, "center", theme.dropped);
  }
  sums.forEach((line, i) => chart.write(line, LABEL_WIDTH, high - 5 - 14 * (sums.length - 1 - i)));
}

/** Return what the bytes of each place come to, as texts. */
function sumsOfPlaces(plan) {
  const sums = new Map();
  for (const slot of plan.slots) {
    if (typeof slot.size === "number") sums.set(slot.place, (sums.get(slot.place) ?? 0) + slot.size);
  }
  const names = { feed: "feeds", state: "variables", constant: "constants", result: "results", arena: "buffers without reuse" };
  return [...sums].map(([place, bytes]) => `${names[place]} ${few(bytes, "B")}`);
}

/** Return texts side by side, in as many lines as the width asks for. */
function inLines(texts, width) {
  const lines = [];
  for (const text of texts) {
    const longer = lines.length ? `${lines.at(-1)}   ${text}` : text;
    if (lines.length && longer.length * 6.7 <= width) lines[lines.length - 1] = longer;
    else lines.push(text);
  }
  return lines;
}
