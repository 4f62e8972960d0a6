// The page of a workflow: it edits the file, and shows what runs. The text of the file is its only state.

const TABS = ["module", "workflow", "run", "text"];
const LOOK = [500, 2000]; // milliseconds between two looks at a workflow that runs, and at none
const TYPING = 350; // milliseconds after the last key until a text is checked

/** Ask the server; what it refuses is an answer with `refused`. */
async function ask(name, body) {
  const given = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(name, given || {});
  if (!answer.ok) throw new Error(`${name}: ${answer.status} ${answer.statusText}`);
  return answer.json();
}

class Flow {
  constructor(start) {
    Object.assign(this, start);
    this.palette = new Theme(start.styles);
    this.draft = { text: "", error: "", modules: [], edges: [], tables: {}, width: 0, height: 0, workers: 0 };
    this.saved = ""; // the text of the file
    this.digest = "";
    this.undone = [];
    this.selected = null; // a module's name
    this.edge = null; // [from, to]
    this.adding = false;
    this.tab = this.editing ? "module" : "run";
    this.now = {}; // how far the workflow is
    this.turn = Promise.resolve();
    this.controls();
  }

  // ---------------------------------------------------------------- asking

  /** Do things one after the other; say what goes wrong. */
  queue(action) {
    this.turn = this.turn.then(action).catch((error) => this.say(`This was not done: ${error.message}`));
    return this.turn;
  }

  say(text) {
    $("said").hidden = !text;
    $("said").textContent = text;
  }

  async read() {
    const found = await ask("read");
    if (found.refused) {
      this.say(found.refused);
      return;
    }
    if (this.dirty) this.undone.push(this.draft.text);
    Object.assign(this, { saved: found.text, digest: found.read, draft: found });
    this.render();
  }

  /** Take over a new draft, or say why there is none; return whether there is. */
  take(found) {
    if (found.refused) {
      this.say(found.refused);
      return false;
    }
    if (found.text !== this.draft.text) this.undone.push(this.draft.text);
    this.draft = found;
    this.render();
    return true;
  }

  change(wish, then) {
    return this.queue(async () => {
      const done = this.take(await ask("change", { text: this.draft.text, change: wish }));
      if (done && then) then();
    });
  }

  /** Let one module come after another, or not any more. */
  link(from, to, on = true) {
    const after = this.module(to).after.filter((name) => name !== from);
    return this.change({ table: ["modules", to], set: { after: on ? [...after, from] : after } }, () => this.select(to));
  }

  remove(name) {
    return this.change({ table: ["modules", name], remove: true }, () => this.select(null));
  }

  undo() {
    return this.queue(async () => {
      const text = this.undone.pop();
      if (text === undefined) return;
      this.draft = await ask("check", { text });
      this.render();
    });
  }

  save() {
    return this.queue(async () => {
      const { text } = this.draft;
      const found = await ask("save", { text, read: this.digest });
      if (found.refused) {
        this.say(found.refused);
        return;
      }
      Object.assign(this, { saved: text, digest: found.read });
      this.render();
      this.tell(`${this.file} is saved`);
    });
  }

  find() {
    return this.queue(async () => {
      this.tell("looking for functions and programs");
      const found = await ask("find", { text: this.draft.text });
      this.say(found.refused ?? "");
      if (!found.refused) this.tell(`in order; it needs ${counted(this.draft.workers, "worker")} at least`);
    });
  }

  tell(text) {
    $("status").textContent = text;
    $("saved").textContent = text;
  }

  // ---------------------------------------------------------------- showing

  module(name) {
    return this.draft.modules.find((module) => module.name === name);
  }

  get dirty() {
    return this.draft.text !== this.saved;
  }

  render() {
    if (!this.module(this.selected)) this.selected = null;
    if (this.edge && !this.draft.edges.some(({ from, to }) => from === this.edge[0] && to === this.edge[1])) this.edge = null;
    this.say(this.draft.modules.length || this.draft.text.trim() ? this.draft.error : "");
    if ($("toml").value !== this.draft.text) $("toml").value = this.draft.text;
    this.header();
    drawGraph(this);
    showForms(this);
    showStates(this);
  }

  header() {
    document.title = `${this.dirty ? "• " : ""}${this.file} · magmagraph`;
    $("undo").disabled = !this.undone.length;
    $("save").disabled = !this.dirty || Boolean(this.draft.error);
    $("saved").textContent = this.editing && this.dirty ? "not saved" : "";
    const go = $("go");
    if (go) go.disabled = this.dirty || Boolean(this.draft.error) || this.running;
    if (go) $("stop").disabled = !this.running;
  }

  select(name) {
    Object.assign(this, { selected: name, edge: null, adding: false });
    if (name) this.show("module");
    this.render();
    this.look();
  }

  // ---------------------------------------------------------------- progress

  get running() {
    return Boolean(this.now.modules) && this.now.ok === null;
  }

  async look() {
    clearTimeout(this.timer);
    const began = performance.now();
    try {
      const asked = this.selected;
      const now = await ask(`progress?module=${encodeURIComponent(asked ?? "")}`);
      if (asked !== this.selected) now.outputs = [];
      if (this.lost) this.say("");
      this.lost = false;
      this.announce(now);
      this.now = now;
      this.header();
      showStates(this);
    } catch {
      if (!this.lost) this.say("The server of this page does not answer.\n  try: copy the text, start it again, and open its new address");
      this.lost = true;
    }
    clearTimeout(this.timer);
    const rest = Math.max(LOOK[this.running ? 0 : 1], 4 * (performance.now() - began)); // a large grid takes its time
    this.timer = setTimeout(() => this.look(), rest);
  }

  /** Say to a screen reader what has changed. */
  announce(now) {
    const before = this.now.modules;
    const changes = Object.entries(before ? now.modules ?? {} : {}).filter(([name, { state }]) => before[name]?.state !== state)
      .map(([name, { state }]) => `${name}: ${state}`);
    if (now.ended && now.ended !== this.now.ended) changes.push(`the workflow: ${now.ended}`);
    if (changes.length) $("status").textContent = changes.join("; ");
  }

  // ---------------------------------------------------------------- controls

  show(tab) {
    this.tab = tab;
    for (const name of TABS) {
      $(name).hidden = name !== tab;
      $(`tab-${name}`).setAttribute("aria-selected", name === tab);
      $(`tab-${name}`).tabIndex = name === tab ? 0 : -1;
    }
  }

  add() {
    Object.assign(this, { adding: true, selected: null, edge: null });
    this.show("module");
    this.render();
    $("form").querySelector("input").focus();
  }

  controls() {
    const on = (id, action) => $(id).addEventListener("click", () => action.call(this));
    for (const [id, action] of Object.entries({ add: this.add, undo: this.undo, find: this.find, save: this.save })) {
      on(id, action);
      $(id).hidden = !this.editing;
    }
    on("again", () => this.queue(() => this.read()));
    $("again").hidden = !this.editing;
    on("theme", () => this.palette.set(this.palette.other));
    const tabs = TABS.filter((name) => this.editing || name !== "workflow");
    $("tab-workflow").hidden = !this.editing;
    for (const tab of tabs) {
      on(`tab-${tab}`, () => this.show(tab));
      $(`tab-${tab}`).addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (!step) return;
        const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
        this.show(next);
        $(`tab-${next}`).focus();
      });
    }
    if (this.editing) $("start").append(startForm(this));
    $("toml").readOnly = !this.editing;
    $("toml").addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.queue(async () => {
        const text = $("toml").value;
        const found = await ask("check", { text });
        if ($("toml").value === text) this.take(found); // else the next key's timer checks it
      }), TYPING);
    });
    addEventListener("keydown", (event) => this.key(event));
    addEventListener("beforeunload", (event) => { if (this.editing && this.dirty) event.preventDefault(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => this.palette.set(event.matches ? "dark" : "light"));
    this.show(this.tab);
  }

  key(event) {
    if ((event.ctrlKey || event.metaKey) && event.key === "s" && this.editing) {
      event.preventDefault();
      if (!$("save").disabled) this.save();
    }
    if (event.target.closest?.("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    const editing = { n: () => this.add(), z: () => this.undo(), Delete: () => this.selected && this.remove(this.selected) };
    const actions = { t: () => this.palette.set(this.palette.other), Escape: () => this.select(null), ...(this.editing ? editing : {}) };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }
}

const flow = new Flow(JSON.parse($("data").textContent));
window.magmagraph = flow;
flow.queue(async () => {
  await flow.read();
  await flow.look();
  flow.ready = true;
});
