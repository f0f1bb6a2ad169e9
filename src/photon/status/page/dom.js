// Elements are made here, and text goes in as text: names of logs, ids and alarms come from outside.
const SVG = "http://www.w3.org/2000/svg";
export const $ = id => document.getElementById(id);

// Characters that would turn the text beside them around, or cannot be seen, are made visible.
export const seen = v => typeof v === "string" ? v.replace(/[\u0000-\u001f\u007f\u202a-\u202e\u2066-\u2069]/g, "\ufffd") : v;

export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children.map(seen));
  return node;
}

export function svg(parent, name, attributes = {}, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = seen(text);
  parent?.appendChild(node);
  return node;
}

// columns: [title, class of its cells or ""]; rows: arrays of text or nodes; classes: of each row. Its label is the page's.
export function table(id, columns, rows, none, classes = []) {
  const node = $(id), label = node.getAttribute("aria-label");
  const held = document.activeElement?.closest?.(`#${id} button`)?.textContent;
  const head = el("tr"), body = el("tbody");
  for (const [title, kind] of columns) head.append(el("th", { scope: "col", class: kind ? "l" : "" }, title));
  rows.forEach((row, at) => {
    const line = el("tr", classes[at] ? { class: classes[at] } : {});
    row.forEach((value, i) => line.append(el("td", { class: columns[i][1] || "" }, value)));
    body.append(line);
  });
  if (!rows.length) body.append(el("tr", {}, el("td", { class: "l", colspan: columns.length }, none)));
  node.replaceChildren(el("thead", {}, head), body);
  if (held) [...node.querySelectorAll("button")].find(b => b.textContent === held)?.focus();
  const box = node.parentElement;  // what scrolls can be reached with the keyboard
  if (box.scrollWidth > box.clientWidth) {
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", label);
  } else {
    box.removeAttribute("tabindex");
    box.removeAttribute("role");
    box.removeAttribute("aria-label");
  }
}
