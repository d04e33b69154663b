// Elements, made and patched by hand. Text goes in as text only: what an agent printed can never become an element, nor
// make the text beside it read as something else.

import { visible } from "./format.js";

const READ_BY_PEOPLE = new Set(["aria-label", "title", "placeholder"]);
const SVG = "http://www.w3.org/2000/svg";

/** An element. `props`: `class`, `text`, `data` (an object), `on…` listeners, anything else is an attribute. */
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
  const there = children.filter((child) => child !== null && child !== undefined);
  node.append(...there.map((child) => (typeof child === "string" ? visible(child) : child)));
  return node;
}

/** A symbol of the sprite in index.html; it only repeats what the text beside it says. */
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

/** Writing what is there already would make screen readers read it again and restart selections. */
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
  return READ_BY_PEOPLE.has(name) ? visible(value) : String(value);
}

export function show(node, isShown) {
  if (node.hidden === isShown) node.hidden = !isShown;
}

/**
 * Keeps the children of `parent` in step with `items`: an item keeps its element for as long as its key lives, so that
 * focus, selection and what is being typed stay. `make(item)` returns `{node, update(item)}`.
 */
export function keyed(parent, items, keyOf, make) {
  const parts = (parent.keyedParts ??= new Map());
  const wanted = new Set(items.map(keyOf));
  for (const [key, part] of parts) {
    if (!wanted.has(key)) {
      part.node.remove();
      parts.delete(key);
    }
  }
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let part = parts.get(key);
    if (!part) {
      part = make(item);
      parts.set(key, part);
    }
    if (part.node === place) place = place.nextElementSibling;
    else parent.insertBefore(part.node, place);
    part.update?.(item);
  }
}

/** What `keyed` has made for the children of `parent`. */
export function partsOf(parent) {
  return parent.keyedParts?.values() ?? [];
}

/** A button with a symbol, a label and an action. */
export function actionButton({ icon: symbol, ...props }, label, action) {
  const button = el("button", { type: "button", class: "button", ...props }, icon(symbol), el("span", { text: label }));
  onAction(button, action);
  return button;
}

/** The button cannot be pressed twice while its action is under way. */
export function onAction(button, action) {
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
