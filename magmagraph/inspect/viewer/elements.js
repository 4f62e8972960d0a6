// Elements of a page: what the viewer and the page of workflows share.

const $ = (id) => document.getElementById(id);

/** Make an element: attributes by name, "on..." as listeners, children as nodes or texts. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function section(title, ...children) {
  return element("section", { "aria-label": title }, element("h3", {}, title), ...children);
}

function facts(rows) {
  const list = element("dl", {});
  for (const [name, value] of rows) {
    if (value === "" || value === null || value === undefined) continue;
    list.append(element("dt", {}, name), element("dd", {}, value));
  }
  return list;
}
