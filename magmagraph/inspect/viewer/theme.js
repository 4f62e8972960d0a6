// Colours of the canvas, for light and dark.

/** Return a colour over a ground, as rgb(). */
function mix(colour, ground, share) {
  const one = channels(colour);
  const other = channels(ground);
  return `rgb(${one.map((c, i) => Math.round(c * share + other[i] * (1 - share))).join(" ")})`;
}

function channels(colour) {
  return [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
}

// Five colours of cividis (Nuñez, Anderton and Renslow 2018), which the colour-blind see alike.
const SCALE = ["#00224e", "#434e6c", "#7d7c78", "#bcaf6f", "#fee838"];
// Of the palette of Okabe and Ito, for things that are only told apart.
const APART = ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#0072b2", "#d55e00", "#f0e442", "#646e7a"];

/** Return the colour of a share from 0 to 1. */
function scaled(share) {
  const at = Math.min(1, Math.max(0, share)) * (SCALE.length - 1);
  const i = Math.min(SCALE.length - 2, Math.floor(at));
  return mix(SCALE[i + 1], SCALE[i], at - i);
}

/** Return black or white, whichever is read better on a ground. */
function inkOn(colour) {
  const values = colour.startsWith("#") ? channels(colour) : colour.match(/\d+/g).map(Number);
  const [r, g, b] = values.map((v) => (v / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.22 ? "#111418" : "#ffffff";
}

class Theme {
  constructor(styles) {
    this.styles = styles;
    this.set(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  }

  /** Take over the colours of "light" or "dark", for the page as well. */
  set(name) {
    this.name = name;
    const theme = this.styles.themes[name];
    Object.assign(this, theme);
    this.kernel = mix(this.styles.colours[this.styles.names.indexOf("fused")], theme.paper, 0.1);
    this.kernelEdge = mix(this.styles.colours[this.styles.names.indexOf("fused")], theme.paper, 0.75);
    this.scope = theme.faint;
    this.accent = name === "dark" ? "#79c0ff" : "#0550ae";
    this.added = name === "dark" ? "#3fd0a4" : "#00795a";
    this.dropped = name === "dark" ? "#ff9a57" : "#b34700";
    this.fills = this.styles.colours.map((colour) => mix(colour, theme.paper, theme.tint));
    document.documentElement.dataset.theme = name;
  }

  get other() {
    return this.name === "dark" ? "light" : "dark";
  }
}
