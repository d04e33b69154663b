// A quota window of a scope: its usage, the believed reset, and how certain that belief is.

import { el, setAttribute, setText } from "./dom.js";
import { ago, clockTime, countdown, fullTime, now, percent } from "./format.js";

const NAMES = { "5h": "5 hours", daily: "day", weekly: "week", monthly: "month" };
const STATES = { open: "open", closed: "spent", probing: "being tried", wave: "reopening" };
const SOURCES = { field: "a structured field", header: "a response header", text: "a sentence", backoff: "backoff" };

/** Sort windows with a known length from shortest to longest; the others come last. */
export function byLength(windows) {
  const lengths = Object.keys(NAMES);
  const place = (window) => (lengths.includes(window.name) ? lengths.indexOf(window.name) : lengths.length);
  return [...windows].sort((a, b) => place(a) - place(b));
}

export function windowRow() {
  let last = null;
  const name = el("span", { class: "window-name" });
  const state = el("span", { class: "badge" });
  const fill = el("i");
  const bar = el("span", { class: "used-bar", role: "img" }, fill);
  const used = el("span", { class: "used", data: { figure: "used" } });
  const reset = el("span", { class: "reset" });
  const belief = el("span", { class: "belief" });
  const node = el(
    "li",
    { class: "window" },
    name,
    bar,
    used,
    state,
    el("span", { class: "window-text" }, reset, belief),
  );

  function update(window) {
    last = window;
    const isClosed = window.state !== "open";
    const ratio = isClosed && window.state === "closed" ? 1 : window.used_ratio;
    setText(name, NAMES[window.name] ?? window.name);
    setAttribute(node, "data-state", window.state);
    setText(state, STATES[window.state] ?? window.state);
    setAttribute(state, "data-state", window.state);
    fill.style.width = `${Math.min(100, Math.max(0, 100 * (ratio ?? 0)))}%`;
    setAttribute(bar, "aria-label", ratio === null || ratio === undefined ? "usage unknown" : `${percent(ratio)} used`);
    setText(used, window.used_ratio === null || window.used_ratio === undefined ? "" : percent(window.used_ratio));
    setAttribute(reset, "title", window.resets_at === null ? null : fullTime(window.resets_at));
    tick();
  }

  function tick() {
    if (!last) return;
    setText(reset, resetText(last));
    setText(belief, beliefText(last));
  }

  return { node, update, tick };
}

function resetText(window) {
  const probe =
    window.state === "closed" && window.probe_at !== null && window.probe_at > now() ? window.probe_at : null;
  if (window.resets_at === null)
    return probe === null ? "reset unknown" : `reset unknown, next try in ${countdown(probe - now())}`;
  const left = window.resets_at - now();
  const missed = window.missed_at ?? null;
  const late = missed === null || missed === window.resets_at ? "" : `did not reset ${clockTime(missed)}; `;
  const when =
    left > 0
      ? `${late}resets ${clockTime(window.resets_at)}, in ${countdown(left)}`
      : `reset was due ${clockTime(window.resets_at)}`;
  const isApart = probe !== null && Math.abs(probe - window.resets_at) > 60;
  return isApart ? `${when}; next try in ${countdown(probe - now())}` : when;
}

function beliefText(window) {
  const parts = [];
  if (window.source) parts.push(`from ${SOURCES[window.source] ?? window.source}`);
  if (window.seen_at !== null) parts.push(`seen ${ago(window.seen_at)}`);
  if (window.confidence !== null) parts.push(`${percent(window.confidence)} sure`);
  return parts.join(", ");
}
