// One graph on a canvas: moved and enlarged by mouse, touch and keys; only what is seen is drawn.

const FONT = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace";
const BUCKET = 400; // height of the strips by which boxes and edges are found
const READABLE = 0.42; // scale below which labels are left out
const SMALLEST = 0.06; // scale below which nothing could be told from anything
const MANY = 6000; // edges from which on a view from afar leaves them out
const ROUND = new Set(["input", "output", "variable", "update"]);

class GraphView {
  /** `events` has select(id, view), moved(view) and toggled(key). */
  constructor(canvas, model, theme, events) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.model = model;
    this.theme = theme;
    this.events = events;
    this.scale = 1;
    this.x = 0;
    this.y = 0;
    this.graph = -1;
    this.selected = new Set();
    this.marks = { added: new Set(), dropped: new Set(), remade: new Set() };
    this.overlay = null;
    this.drawing = null;
    this.pending = false;
    this.fresh = true;
    this.listen();
  }

  /** Show a graph; the part that was seen stays where it was as far as it is still there. */
  show(graph, closed) {
    const key = `${this.model.graphs[graph].layout}:${[...closed].join()}`;
    this.graph = graph;
    if (key === this.key) return;
    this.key = key;
    this.drawing = place(this.model, this.model.layout(graph), closed);
    this.boxesOf = new Map();
    for (const box of this.drawing.boxes) {
      if (box.role === ROLE.node) append(this.boxesOf, box.node, box);
    }
    for (const frame of this.drawing.frames) {
      if (frame.node >= 0) append(this.boxesOf, frame.node, frame);
    }
    this.strips = this.sorted();
    if (this.fresh && this.canvas.clientWidth) this.start();
  }

  sorted() {
    const strips = { boxes: [], edges: [] };
    const put = (list, thing, top, bottom) => {
      const last = Math.max(0, Math.floor(bottom / BUCKET));
      for (let i = Math.max(0, Math.floor(top / BUCKET)); i <= last; i++) (list[i] ??= []).push(thing);
    };
    for (const box of this.drawing.boxes) put(strips.boxes, box, box.y, box.y + box.height + 20);
    for (const edge of this.drawing.edges) put(strips.edges, edge, edge.top, edge.bottom);
    return strips;
  }

  /** Choose a first view: all of it if that can be read, else its top. */
  start() {
    this.fresh = false;
    const { clientWidth: wide, clientHeight: high } = this.canvas;
    const all = Math.min((wide - 40) / this.drawing.width, (high - 40) / this.drawing.height);
    const across = (wide - 40) / this.drawing.width;
    this.scale = Math.min(1, Math.max(all, Math.min(across, 1), 0.5));
    this.x = (wide - this.drawing.width * this.scale) / 2;
    this.y = Math.max(40, (high - this.drawing.height * this.scale) / 2);
    if (this.drawing.width * this.scale > wide) this.lookAtTop();
  }

  /** Move so that the first row is seen, where the graph is wider than the view. */
  lookAtTop() {
    let best = null;
    for (const box of this.drawing.boxes) {
      if (!best || box.y < best.y || (box.y === best.y && box.x < best.x)) best = box;
    }
    if (!best) return;
    const { clientWidth: wide } = this.canvas;
    const middle = wide / 2 - (best.x + best.width / 2) * this.scale;
    this.x = Math.min(20, Math.max(wide - 20 - this.drawing.width * this.scale, middle));
  }

  fit() {
    const { clientWidth: wide, clientHeight: high } = this.canvas;
    const { width, height } = this.drawing;
    const all = Math.min(1.5, (wide - 40) / width, (high - 40) / height);
    // All of a long chain would be a hair: its width is fitted instead.
    this.scale = all < SMALLEST ? Math.max(all, Math.min(1, (wide - 40) / width)) : all;
    this.x = (wide - width * this.scale) / 2;
    this.y = Math.max((high - height * this.scale) / 2, all < SMALLEST ? 40 : -Infinity);
    this.changed();
  }

  /** Bring a node to the middle; return whether the graph has it. */
  centre(id) {
    const [box] = this.boxesOf.get(id) ?? this.boxesOf.get(this.model.data.nodes.inside[id]) ?? [];
    if (!box) return false;
    this.scale = Math.max(this.scale, 0.8);
    this.x = this.canvas.clientWidth / 2 - (box.x + box.width / 2) * this.scale;
    this.y = this.canvas.clientHeight / 2 - (box.y + Math.min(box.height, 60) / 2) * this.scale;
    this.changed();
    return true;
  }

  zoom(factor, cx = this.canvas.clientWidth / 2, cy = this.canvas.clientHeight / 2) {
    const scale = Math.min(3, Math.max(0.004, this.scale * factor));
    this.x = cx - ((cx - this.x) * scale) / this.scale;
    this.y = cy - ((cy - this.y) * scale) / this.scale;
    this.scale = scale;
    this.changed();
  }

  changed() {
    this.events.moved(this);
    this.redraw();
  }

  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.draw();
    });
  }

  // ---------------------------------------------------------------- input

  listen() {
    const canvas = this.canvas;
    const pointers = new Map();
    let moved = 0;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, event);
      moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) {
        canvas.style.cursor = this.hit(event.offsetX, event.offsetY) ? "pointer" : "grab";
        return;
      }
      const dx = event.clientX - before.clientX;
      const dy = event.clientY - before.clientY;
      moved += Math.abs(dx) + Math.abs(dy);
      if (pointers.size === 2) {
        const [other] = [...pointers.values()].filter((p) => p.pointerId !== event.pointerId);
        const was = Math.hypot(before.clientX - other.clientX, before.clientY - other.clientY);
        const is = Math.hypot(event.clientX - other.clientX, event.clientY - other.clientY);
        if (was > 0) this.zoom(is / was, event.offsetX, event.offsetY);
      }
      this.x += dx;
      this.y += dy;
      pointers.set(event.pointerId, event);
      this.changed();
    });
    const up = (event) => {
      if (pointers.delete(event.pointerId) && moved < 4 && event.type === "pointerup") {
        const found = this.hit(event.offsetX, event.offsetY);
        if (found?.onTitle) this.events.toggled(found.box.key);
        else this.events.select(found ? found.box.node : -1, this);
      }
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.ctrlKey || event.metaKey || event.altKey || event.deltaMode === 1) {
        this.zoom(Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.006)),
          event.offsetX, event.offsetY);
      } else {
        this.x -= event.deltaX;
        this.y -= event.deltaY;
        this.changed();
      }
    }, { passive: false });
  }

  /** Return {box, onTitle} at a point of the canvas, or null. */
  hit(px, py) {
    if (!this.drawing) return null;
    const x = (px - this.x) / this.scale;
    const y = (py - this.y) / this.scale;
    for (const box of this.strips.boxes[Math.floor(y / BUCKET)] ?? []) {
      if (x >= box.x && x <= box.x + box.width && y >= box.y && y <= box.y + box.height) {
        return { box, onTitle: false };
      }
    }
    const frames = this.drawing.frames.filter(
      (f) => x >= f.x && x <= f.x + f.width && y >= f.y && y <= f.y + f.height,
    );
    const box = frames[frames.length - 1];
    if (!box) return null;
    const title = this.titleOf(box);
    return { box, onTitle: x >= title && x - title < 24 && y - box.y < (box.closed ? 34 : 24) };
  }

  // ---------------------------------------------------------------- drawing

  draw() {
    const { clientWidth: wide, clientHeight: high } = this.canvas;
    if (!wide || !this.drawing || this.onPaper) return;
    if (this.fresh) this.start();
    this.paint(wide, high, devicePixelRatio || 1);
  }

  paint(wide, high, ratio) {
    const { canvas, context, theme } = this;
    if (canvas.width !== Math.round(wide * ratio) || canvas.height !== Math.round(high * ratio)) {
      canvas.width = Math.round(wide * ratio);
      canvas.height = Math.round(high * ratio);
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = theme.paper;
    context.fillRect(0, 0, wide, high);
    context.translate(this.x, this.y);
    context.scale(this.scale, this.scale);
    const seen = {
      left: -this.x / this.scale, top: -this.y / this.scale,
      right: (wide - this.x) / this.scale, bottom: (high - this.y) / this.scale,
    };
    this.grounds = new Map(); // kernel -> the colour in it
    for (const frame of this.drawing.frames) {
      if (frame.y < seen.bottom && frame.y + frame.height > seen.top
        && frame.x < seen.right && frame.x + frame.width > seen.left) this.drawFrame(frame);
    }
    if (this.scale > 0.05 || this.drawing.edges.length < MANY) this.drawEdges(seen);
    const shown = this.inView(this.strips.boxes, seen);
    for (const box of shown) {
      if (box.x < seen.right && box.x + box.width > seen.left) this.drawBox(box);
    }
    this.drawMarks(seen);
    this.shown = shown.size;
  }

  inView(strips, seen) {
    const found = new Set();
    const first = Math.max(0, Math.floor(seen.top / BUCKET));
    for (let i = first; i <= Math.min(strips.length - 1, Math.floor(seen.bottom / BUCKET)); i++) {
      for (const thing of strips[i] ?? []) found.add(thing);
    }
    return found;
  }

  drawEdges(seen) {
    const { context, theme } = this;
    const strong = [];
    context.lineJoin = "round";
    context.strokeStyle = theme.edge;
    context.lineWidth = Math.max(1.2, 0.7 / this.scale);
    for (const edge of this.inView(this.strips.edges, seen)) {
      const chosen = this.selected.size
        && (this.selected.has(edge.value) || edge.readers.some((id) => this.selected.has(id)));
      if (chosen) strong.push(edge);
      else context.stroke(edgePath(edge));
    }
    context.strokeStyle = theme.accent;
    context.lineWidth = Math.max(2.2, 1.4 / this.scale);
    for (const edge of strong) context.stroke(edgePath(edge));
  }

  /** Return where the title of a frame begins: at its edge, or where the view begins in it. */
  titleOf(frame) {
    const seen = Math.max(frame.x, -this.x / this.scale);
    return Math.max(frame.x, Math.min(seen, frame.x + frame.width - 160));
  }

  drawFrame(frame) {
    const { context, theme } = this;
    const kernel = frame.node >= 0;
    const colour = this.overlay?.colour(frame.node);
    const plain = colour ? mixRgb(colour, theme.paper, 0.25) : theme.kernel;
    context.fillStyle = kernel ? plain : theme.scope;
    if (kernel) this.grounds.set(frame.node, plain);
    context.strokeStyle = kernel ? theme.kernelEdge : theme.edge;
    context.lineWidth = 1.3;
    if (!kernel) context.setLineDash([3, 3]);
    context.beginPath();
    context.roundRect(frame.x, frame.y, frame.width, frame.height, 9);
    context.fill();
    context.stroke();
    context.setLineDash([]);
    if (this.scale < READABLE) return;
    context.font = `11px ${FONT}`;
    context.textAlign = "left";
    context.fillStyle = theme.muted;
    const steps = kernel && this.model.graphs[this.graph].isPlan
      ? stepsOf(this.model, frame.node, this.graph) : [];
    const name = steps.length ? `step ${steps.join(", ")}` : frame.label;
    const text = frame.closed ? `${name}: ${frame.count} inside` : name;
    const left = this.titleOf(frame);
    const room = Math.max(4, Math.floor((frame.width - (left - frame.x) - 30) / 6.7));
    const base = frame.y + (frame.closed ? 21 : 15);
    context.fillText(frame.closed ? "▸" : "▾", left + 9, base);
    context.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, left + 23, base);
  }

  drawBox(box) {
    const { context, theme, model } = this;
    const wide = Math.min(box.width, model.metrics.sign + box.label.length * model.metrics.character + 12);
    const x = box.x + (box.width - wide) / 2;
    const name = model.styles.names[box.style];
    const colour = box.role === ROLE.node ? this.overlay?.colour(box.node) ?? null : null;
    const plain = this.overlay && !colour;
    context.fillStyle = colour ?? (plain ? theme.faint : theme.fills[box.style]);
    if (this.scale < 0.12) {
      if (!colour && !plain) context.fillStyle = model.styles.colours[box.style];
      context.fillRect(x, box.y, wide, box.height);
      return;
    }
    context.strokeStyle = plain ? theme.edge : model.styles.colours[box.style];
    context.lineWidth = name === "variable" || name === "update" ? 2.2 : 1.3;
    if (name === "update") context.setLineDash([5, 3]);
    context.beginPath();
    context.roundRect(x, box.y, wide, box.height, ROUND.has(name) ? 14 : 5);
    context.fill();
    context.stroke();
    context.setLineDash([]);
    if (this.scale < READABLE) return;
    context.fillStyle = colour ? inkOn(colour) : theme.ink;
    context.textAlign = "center";
    context.font = `700 13px ${FONT}`;
    context.fillText(model.styles.signs[box.style], x + 14, box.y + 18.5);
    context.textAlign = "left";
    context.font = `12px ${FONT}`;
    context.fillText(box.label, x + model.metrics.sign, box.y + 18.2);
    if (box.note) {
      context.font = `10.5px ${FONT}`;
      context.textAlign = "center";
      context.fillStyle = this.grounds.get(box.owner) ?? (box.within ? theme.scope : theme.paper);
      const half = (box.note.length * model.metrics.small) / 2;
      context.fillRect(box.x + box.width / 2 - half, box.y + 33, 2 * half, 13);
      context.fillStyle = theme.muted;
      context.fillText(box.note, box.x + box.width / 2, box.y + 42.5);
    }
    const steps = model.graphs[this.graph].isPlan && box.owner < 0 && model.stepOf.has(box.node);
    if (steps && box.role === ROLE.node) this.badge(x + wide, box.y, model.stepOf.get(box.node));
  }

  badge(x, y, number) {
    const { context, theme } = this;
    const text = String(number);
    const wide = 8 + text.length * 6.5;
    context.fillStyle = theme.ink;
    context.beginPath();
    context.roundRect(x - wide / 2, y - 7, wide, 14, 7);
    context.fill();
    context.fillStyle = theme.paper;
    context.font = `600 10px ${FONT}`;
    context.textAlign = "center";
    context.fillText(text, x, y + 3.5);
  }

  /** Draw outlines around what is selected, and around what the pass changed. */
  drawMarks(seen) {
    const { added, dropped, remade } = this.marks;
    const around = (ids, colour, width, dash) => {
      this.context.strokeStyle = colour;
      this.context.lineWidth = Math.max(width, width / this.scale / 1.5);
      this.context.setLineDash(dash.map((length) => length / Math.min(1, this.scale)));
      const gap = 3.5;
      for (const id of ids) {
        for (const box of this.boxesOf.get(id) ?? []) {
          if (box.y > seen.bottom || box.y + box.height < seen.top) continue;
          const wide = box.role === ROLE.frame ? box.width : Math.min(
            box.width, this.model.metrics.sign + box.label.length * this.model.metrics.character + 12,
          );
          const x = box.x + (box.width - wide) / 2;
          this.context.beginPath();
          this.context.roundRect(x - gap, box.y - gap, wide + 2 * gap, box.height + 2 * gap, 9);
          this.context.stroke();
        }
      }
      this.context.setLineDash([]);
    };
    around(remade, this.theme.edge, 1.2, [2, 3]);
    around(added, this.theme.added, 2.2, []);
    around(dropped, this.theme.dropped, 2.2, [5, 3]);
    around(this.selected, this.theme.accent, 2.6, []);
  }
}

/** Return an rgb() or #rrggbb colour over a ground. */
function mixRgb(colour, ground, share) {
  if (colour.startsWith("#")) return mix(colour, ground, share);
  const hex = colour.match(/\d+/g).map((v) => Number(v).toString(16).padStart(2, "0")).join("");
  return mix(`#${hex}`, ground, share);
}
