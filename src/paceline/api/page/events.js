// The live list of events: newest first, with filters. It does not move while the user reads it.

import { el, setText, show, syncChildren } from "./dom.js";
import { emptyState } from "./empty_state.js";
import { clockSeconds, dollars, duration, fullTime } from "./format.js";

const MAX_KEPT = 500;
const KINDS = ["unit", "campaign", "scope", "window", "account", "slot", "engine", "control"];
const TONES = {
  "unit.done": "done",
  "unit.started": "running",
  "unit.resumed": "running",
  "unit.parked": "parked",
  "unit.failed": "failed",
  "unit.quarantined": "failed",
  "unit.unverified": "failed",
  "unit.held": "held",
  "account.held": "held",
  "campaign.paused": "held",
  "window.closed": "parked",
  "window.reopened": "done",
  "scope.paused": "parked",
  "scope.limit_reduced": "failed",
};

export function makeEvents(root, openUnit) {
  const body = root.querySelector(".body");
  const kept = [];
  const waiting = [];
  const text = el("input", {
    type: "search",
    placeholder: "Filter",
    "aria-label": "Filter events by text",
    oninput: draw,
  });
  const kind = el(
    "select",
    { "aria-label": "Kind of events", onchange: draw },
    el("option", { value: "", text: "All kinds" }),
    ...KINDS.map((name) => el("option", { value: name, text: name })),
  );
  const list = el("ol", { class: "event-list", tabindex: "0", "aria-label": "Events, newest first" });
  const held = el("button", {
    type: "button",
    class: "button small held-back",
    hidden: true,
    onclick: () => flush(true),
  });
  const empty = emptyState("Nothing has happened yet", "Every start, park, limit change and command appears here.");
  root.querySelector(".controls").append(text, kind);
  body.append(held, empty, list);
  body.addEventListener("pointerleave", () => flush());
  list.addEventListener("focusout", () => flush());
  let frame = 0;

  /** Return whether new lines would move text that the user points to or has selected. */
  function isBeingRead() {
    const selection = getSelection();
    const isSelected = selection && !selection.isCollapsed && list.contains(selection.anchorNode);
    return body.matches(":hover") || list.contains(document.activeElement) || isSelected;
  }

  function add(event) {
    waiting.push(event);
    if (waiting.length > MAX_KEPT) waiting.shift(); // a hidden page draws nothing, so the list would grow
    if (!frame) frame = requestAnimationFrame(() => flush());
  }

  function flush(isForced = false) {
    frame = 0;
    if (!isForced && kept.length > 0 && isBeingRead()) {
      setText(held, `${waiting.length} new`);
      show(held, waiting.length > 0);
      return;
    }
    show(held, false);
    if (!waiting.length) return;
    kept.unshift(...waiting.reverse());
    waiting.length = 0;
    kept.length = Math.min(kept.length, MAX_KEPT);
    if (isForced) list.scrollTop = 0;
    draw();
  }

  function draw() {
    const wanted = text.value.trim().toLowerCase();
    const shown = kept.filter(
      (event) =>
        (!kind.value || event.name.startsWith(`${kind.value}.`)) &&
        (!wanted || lineOf(event).toLowerCase().includes(wanted)),
    );
    setText(empty.firstChild, kept.length ? "No event matches" : "Nothing has happened yet");
    show(empty, shown.length === 0);
    show(list, shown.length > 0);
    syncChildren(
      list,
      shown,
      (event) => event.id,
      (event) => ({ node: row(event, openUnit) }),
    );
  }

  function clear() {
    [kept.length, waiting.length] = [0, 0];
    draw();
  }

  draw();
  return { add, clear };
}

function row(event, openUnit) {
  const subject = event.name.startsWith("unit.") ? event.unit : (event.fields.target ?? waiterOf(event) ?? event.scope);
  const what = whatOf(event);
  const name =
    event.unit && event.name.startsWith("unit.")
      ? el("button", { type: "button", class: "link", text: event.unit, onclick: () => openUnit(event.unit) })
      : el("span", { class: "subject", text: subject ?? "" });
  return el(
    "li",
    { class: "event", data: { tone: TONES[event.name] ?? "" } },
    el("time", { text: clockSeconds(event.at), title: fullTime(event.at) }),
    el("span", { class: "what", text: what }),
    el("span", { class: "rest" }, name, el("span", { class: "detail", text: detailOf(event) })),
  );
}

/** Return the event name without the part shown beside it. Commands of people and programs are labelled as such. */
function whatOf({ name, fields }) {
  if (fields.action) return `command ${fields.action}${name === "control.token" ? " token" : ""}`;
  if (name === "slot.deferred") return "waits";
  return name
    .replace(/^(unit|scope)\./, "")
    .replace(/^control\./, "command ")
    .replace(/[._]/g, " ");
}

/** Return the campaign that waits, and the login that its units wait for. */
function waiterOf({ name, fields: { campaign, account, host } }) {
  return name === "slot.deferred" && campaign ? [campaign, account, host].filter(Boolean).join(" ") : undefined;
}

function lineOf(event) {
  const { action, target } = event.fields;
  const subject = `${action ?? ""} ${target ?? waiterOf(event) ?? ""}`;
  return `${event.name} ${subject} ${event.unit ?? ""} ${event.scope ?? ""} ${detailOf(event)}`;
}

/** Return the fields of the event as text, without null values. */
function detailOf({ name, at, scope, fields }) {
  if (name === "unit.started" || name === "unit.resumed") return scope ? `on ${scope}` : "";
  if (name === "unit.done") return "";
  if (name.startsWith("budget.")) return budgetDetail(name, at, fields);
  if (name === "slot.deferred") {
    const until = fields.retry_at > at ? `, again ${duration(fields.retry_at - at)} later` : "";
    return `${fields.detail ?? ""}${until}`;
  }
  const hidden = ["reason", "action", "target", "ticket", "owner", "attempt", "session_id", "attempts", "slot", "signal"];
  const parts = [];
  if (fields.reason) parts.push(fields.reason);
  for (const [key, value] of Object.entries(fields)) {
    if (
      value === null ||
      value === undefined ||
      (Array.isArray(value) && value.length === 0) ||
      (name === "key.created" && !value) ||
      (key === "name" && scope?.endsWith(`:${value}`)) ||
      hidden.includes(key)
    )
      continue;
    if (key === "exit_code" && name.startsWith("unit.")) continue;
    const isMoment = key.endsWith("_at") || key === "until";
    const shown =
      isMoment && typeof value === "number"
        ? `${clockSeconds(value)} (${value > at ? `${duration(value - at)} later` : "past"})`
        : printed(value);
    parts.push(`${key.replaceAll("_", " ")} ${shown}`);
  }
  return parts.join(", ");
}

/** Return what is spent of a budget, and when one that is reached continues. */
function budgetDetail(name, at, { budget, spent, resumes_at: resumesAt }) {
  const text = `${dollars(spent)} of ${budget}`;
  if (name !== "budget.reached" || typeof resumesAt !== "number") return text;
  return `${text}, continues ${clockSeconds(resumesAt)} (${duration(resumesAt - at)} later)`;
}

function printed(value) {
  if (typeof value === "number") return String(Number(value.toPrecision(4)));
  return typeof value === "string" ? value : JSON.stringify(value);
}
