// From frames to a drawing. As magmagraph/inspect/pictures/geometry.py does it, but frames may be closed.

const CLOSED = 34; // height of a closed frame
const TURN = 6;
const LANE_STEP = 3;
const SPREAD = 12;
const ROLE = { node: 0, frame: 1, entry: 2, exit: 3, update: 4, output: 5 };

/** Return the place of everything: {width, height, boxes, frames, edges}. */
function place(model, layout, closed) {
  const drawing = { width: layout.frames[0].wide, height: 0, boxes: [], frames: [], edges: [] };
  const builder = new Builder(model, layout, closed, drawing);
  drawing.height = builder.frame(0, 0, 0, "");
  return drawing;
}

/** Return what tells a frame apart from the others: its kernel, or its path. */
function frameKey(frame, path) {
  return frame.kernel >= 0 ? `k${frame.kernel}` : path;
}

class Builder {
  constructor(model, layout, closed, drawing) {
    this.model = model;
    this.frames = layout.frames;
    this.closed = closed;
    this.drawing = drawing;
    this.m = model.metrics;
    this.known = new Map(); // frame -> heights of its rows
  }

  title(frame) {
    return this.model.text(frame.title);
  }

  heights(frame, path) {
    const known = this.known.get(frame);
    if (known) return known;
    const found = [];
    for (let i = 0; i < frame.role.length; i++) {
      const row = frame.row[i];
      while (found.length <= row) found.push(0);
      found[row] = Math.max(found[row], this.height(frame, i, path));
    }
    this.known.set(frame, found);
    return found;
  }

  height(frame, i, path) {
    const role = frame.role[i];
    if (role === ROLE.entry || role === ROLE.exit) return 0;
    if (role !== ROLE.frame) {
      return this.m.box + (this.model.text(frame.note[i]) ? this.m.type : 0);
    }
    const inner = this.frames[frame.frame[i]];
    const within = `${path}/${this.title(inner)}`;
    if (this.closed.has(frameKey(inner, within))) return CLOSED;
    const rows = this.heights(inner, within);
    const gaps = this.m.row_gap * Math.max(0, rows.length - 1);
    return this.m.title + 2 * this.m.pad + rows.reduce((a, b) => a + b, 0) + gaps;
  }

  /** Place what a frame holds; return its height. */
  frame(index, left, top, path) {
    const frame = this.frames[index];
    const rows = this.heights(frame, path);
    const tops = [];
    let y = top;
    for (const height of rows) {
      tops.push(y);
      y += height + this.m.row_gap;
    }
    const owner = frame.kernel;
    for (let i = 0; i < frame.role.length; i++) {
      const role = frame.role[i];
      if (role === ROLE.entry || role === ROLE.exit) continue;
      const width = frame.width[i];
      const x = left + frame.x[i] - width / 2;
      const box = {
        x, y: tops[frame.row[i]], width, role, node: frame.node[i], owner,
        label: this.model.text(frame.label[i]), note: this.model.text(frame.note[i]),
        style: frame.style[i], height: this.m.box, within: path !== "",
      };
      if (role !== ROLE.frame) {
        this.drawing.boxes.push(box);
        continue;
      }
      const inner = this.frames[frame.frame[i]];
      const within = `${path}/${this.title(inner)}`;
      box.key = frameKey(inner, within);
      box.closed = this.closed.has(box.key);
      box.height = this.height(frame, i, path);
      box.count = inner.role.filter((r) => r === ROLE.node || r === ROLE.frame).length;
      this.drawing.frames.push(box);
      if (!box.closed) {
        const shift = (width - inner.wide) / 2;
        this.frame(frame.frame[i], x + shift, box.y + this.m.title + this.m.pad, within);
      }
    }
    this.route(frame, left, tops, rows, path);
    return rows.length ? y - this.m.row_gap : 0;
  }

  /** Return where each net ends at each target, by `net * items + target`. */
  arrivals(frame, left) {
    const coming = new Map();
    frame.nets.forEach(([, source, targets, trunk, lane, far], number) => {
      for (const target of targets) {
        const span = frame.row[target] - frame.row[source] - 1;
        let last = span > 0 ? trunk[span - 1] : frame.x[source];
        if (far.includes(target)) last = lane;
        append(coming, target, [last, number]);
      }
    });
    const found = new Map();
    for (const [target, nets] of coming) {
      if (frame.role[target] === ROLE.frame) {
        const ports = this.ports(frame.frame[target], ROLE.entry);
        const edge = this.portEdge(frame, target, left);
        for (const [, number] of nets) {
          found.set(number * frame.role.length + target, edge + ports.get(frame.nets[number][0]));
        }
        continue;
      }
      const step = Math.min(SPREAD, (frame.width[target] - 16) / nets.length);
      nets.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
      nets.forEach(([, number], i) => {
        const x = left + frame.x[target] + (i - (nets.length - 1) / 2) * step;
        found.set(number * frame.role.length + target, x);
      });
    }
    return found;
  }

  /** Return the place of each port, from the left of what a frame holds. */
  ports(index, role) {
    const frame = this.frames[index];
    const cache = (frame.ports ??= {});
    if (!cache[role]) {
      cache[role] = new Map();
      frame.role.forEach((r, i) => {
        if (r === role) cache[role].set(frame.node[i], frame.x[i]);
      });
    }
    return cache[role];
  }

  portEdge(frame, i, left) {
    const inner = this.frames[frame.frame[i]];
    return left + frame.x[i] - frame.width[i] / 2 + (frame.width[i] - inner.wide) / 2;
  }

  route(frame, left, tops, rows, path) {
    const ends = this.arrivals(frame, left);
    const items = frame.role.length;
    frame.nets.forEach(([value, source, targets, trunk, lane, far], number) => {
      const row = frame.row[source];
      const isFrame = frame.role[source] === ROLE.frame;
      let x = left + frame.x[source];
      if (isFrame) {
        x = this.portEdge(frame, source, left)
          + this.ports(frame.frame[source], ROLE.exit).get(value);
      }
      let y = tops[row] + (isFrame ? this.height(frame, source, path) : this.m.box);
      if (frame.role[source] === ROLE.entry) y = tops[row] - this.m.pad;
      const edge = {
        value, lines: [["M", x, y, x, tops[row] + rows[row]]], tips: [], readers: [],
        top: y, bottom: tops[row] + rows[row], path: null,
      };
      y = tops[row] + rows[row];
      const near = targets.filter((target) => !far.includes(target));
      const last = near.reduce((a, target) => Math.max(a, frame.row[target]), row);
      for (const target of targets) edge.readers.push(frame.node[target]);
      const foot = y;
      const start = x;
      for (let at = row + 1; at <= last; at++) {
        for (const target of near) {
          if (frame.row[target] === at) {
            this.end(edge, frame, target, ends.get(number * items + target), tops[at], x, y);
          }
        }
        if (at - row - 1 < trunk.length && at < last) {
          const onward = left + trunk[at - row - 1];
          edge.lines.push(["C", x, y, onward, tops[at]]);
          edge.lines.push(["M", onward, tops[at], onward, tops[at] + rows[at]]);
          x = onward;
          y = tops[at] + rows[at];
        }
      }
      for (const target of far) {
        const to = ends.get(number * items + target);
        const top = tops[frame.row[target]];
        const step = 4 + (number % 6) * LANE_STEP;
        edge.lines.push(["L", start, foot, left + lane, foot + step, top - step, to, top]);
        this.tip(edge, frame, target, to, top);
      }
      this.drawing.edges.push(edge);
    });
  }

  end(edge, frame, target, to, top, x, y) {
    edge.lines.push(["C", x, y, to, top]);
    this.tip(edge, frame, target, to, top);
  }

  tip(edge, frame, target, to, top) {
    edge.top = Math.min(edge.top, top);
    edge.bottom = Math.max(edge.bottom, top);
    if (frame.role[target] === ROLE.exit) {
      edge.lines.push(["M", to, top, to, top + this.m.pad]);
      edge.bottom = Math.max(edge.bottom, top + this.m.pad);
    } else if (frame.role[target] !== ROLE.frame) {
      edge.tips.push([to, top]);
    }
  }
}

/** Return the path of an edge, made when it is first drawn. */
function edgePath(edge) {
  if (edge.path) return edge.path;
  const path = new Path2D();
  for (const line of edge.lines) {
    const [kind, x, y] = line;
    path.moveTo(x, y);
    if (kind === "M" || (kind === "C" && Math.abs(line[3] - x) < 0.5)) {
      path.lineTo(line[3], line[4]);
    } else if (kind === "C") {
      const middle = (y + line[4]) / 2;
      path.bezierCurveTo(x, middle, line[3], middle, line[3], line[4]);
    } else {
      const [, , , lane, out, back, to, top] = line;
      const down = back > out ? TURN : -TURN;
      path.lineTo(x, out);
      path.lineTo(lane - TURN, out);
      path.quadraticCurveTo(lane, out, lane, out + down);
      path.lineTo(lane, back - down);
      path.quadraticCurveTo(lane, back, lane - TURN, back);
      path.lineTo(to, back);
      path.lineTo(to, top);
    }
  }
  for (const [x, y] of edge.tips) {
    path.moveTo(x - 3.5, y - 5.5);
    path.lineTo(x, y);
    path.lineTo(x + 3.5, y - 5.5);
  }
  edge.path = path;
  return path;
}
