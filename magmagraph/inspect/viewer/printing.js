// On paper: all of the graphs that are shown, in light colours, whatever part the window shows.

const PAPER_RATIO = 2; // dots for a pixel of the drawing
const LONGEST = 12000; // dots along a side of a canvas that every browser has
const PAPER_EDGE = 20;

/** Draw all of a view's graph into its canvas. */
function drawWhole(view) {
  const wide = view.drawing.width + 2 * PAPER_EDGE;
  const high = view.drawing.height + 2 * PAPER_EDGE;
  view.x = view.y = PAPER_EDGE;
  view.scale = 1;
  view.paint(wide, high, Math.min(PAPER_RATIO, LONGEST / Math.max(wide, high)));
}

/** Let the page print all of what it shows, and be as it was afterwards. */
function preparePrinting(app) {
  let kept = null;
  addEventListener("beforeprint", () => {
    if (kept) return;
    const views = app.state.compare ? [app.left, app.view] : [app.view];
    kept = { theme: app.theme.name, views: views.map((view) => [view, view.x, view.y, view.scale]) };
    app.theme.set("light");
    app.update();
    for (const view of views) {
      view.onPaper = true;
      drawWhole(view);
    }
  });
  addEventListener("afterprint", () => {
    if (!kept) return;
    app.theme.set(kept.theme);
    for (const [view, x, y, scale] of kept.views) Object.assign(view, { x, y, scale, onPaper: false });
    kept = null;
    app.update();
    for (const view of [app.left, app.view]) view.redraw();
  });
}
