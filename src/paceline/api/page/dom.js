// Functions that create and patch DOM elements. Text is only ever inserted as text: output of an agent can never become
// an element, nor change the reading order of the text beside it.

import { visible } from "./format.js";
import { marksChange } from "./permissions.js";

const TEXT_ATTRIBUTES = new Set(["aria-label", "title", "placeholder"]);
const SVG = "http://www.w3.org/2000/svg";

/** Create an element. `props`: `class`, `text`, `data` (an object), `on…` listeners, anything else is an attribute. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "text") node.textContent = visible(value);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, attributeOf(name, value));
  }
  const present = children.filter((child) => child !== null && child !== undefined);
  node.append(...present.map((child) => (typeof child === "string" ? visible(child) : child)));
  return node;
}

/** Create a symbol from the sprite in index.html. It is hidden from screen readers: the text beside it has the meaning. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const use = document.createElementNS(SVG, "use");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

export function setIcon(svg, name) {
  svg.setAttribute("class", `icon icon-${name}`);
  setAttribute(svg.firstChild, "href", `#i-${name}`);
}

/** Set the text only if it differs: rewriting it would repeat it in screen readers and clear selections. */
export function setText(node, text) {
  const wanted = visible(text ?? "");
  if (node.textContent !== wanted) node.textContent = wanted;
}

export function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else {
    const wanted = attributeOf(name, value);
    if (node.getAttribute(name) !== wanted) node.setAttribute(name, wanted);
  }
}

function attributeOf(name, value) {
  if (value === true) return "";
  return TEXT_ATTRIBUTES.has(name) ? visible(value) : String(value);
}

export function show(node, isShown) {
  if (node.hidden === isShown) node.hidden = !isShown;
}

/**
 * Make the children of `parent` match `items`. An item keeps its element as long as its key exists, so that focus,
 * selection and typed input stay. `make(item)` returns `{node, update(item)}`.
 */
export function syncChildren(parent, items, keyOf, make) {
  const parts = (parent.syncedParts ??= new Map());
  const wanted = new Set(items.map(keyOf));
  for (const [key, part] of parts) {
    if (!wanted.has(key)) {
      part.node.remove();
      parts.delete(key);
    }
  }
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let part = parts.get(key);
    if (!part) {
      part = make(item);
      parts.set(key, part);
    }
    if (part.node === next) next = next.nextElementSibling;
    else parent.insertBefore(part.node, next);
    part.update?.(item);
  }
}

/** Return the parts that `syncChildren` made for `parent`. */
export function partsOf(parent) {
  return parent.syncedParts?.values() ?? [];
}

/** Create a button with a symbol, a label and an action. With `isHarmless` it changes nothing, and always works. */
export function actionButton({ icon: symbol, isHarmless = false, ...props }, label, action) {
  const button = el("button", { type: "button", class: "button", ...props }, icon(symbol), el("span", { text: label }));
  onAction(button, action, isHarmless);
  return button;
}

/** Run the action on each click, and ignore clicks while it is running. */
export function onAction(button, action, isHarmless = false) {
  if (!isHarmless) marksChange(button);
  button.addEventListener("click", async () => {
    if (button.getAttribute("aria-busy") === "true") return;
    button.setAttribute("aria-busy", "true");
    try {
      await action();
    } finally {
      button.removeAttribute("aria-busy");
    }
  });
}
