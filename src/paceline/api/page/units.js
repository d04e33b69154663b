// The table of units. Only visible rows are elements, and only pages near them are kept, however many units there are.

import { el, icon, setAttribute, setIcon, setText, show } from "./dom.js";
import { emptyState } from "./empty_state.js";
import { ago, clockTime, count, phaseOf, plural, until } from "./format.js";
import { Pages } from "./pages.js";
import { get } from "./requests.js";
import { throttled } from "./throttle.js";

const PAGE = 100;
const [ROW, CARD] = [34, 62];
const COMPACT_BELOW = 560;
const OVERSCAN = 6;
const TAIL_LENGTH = 14;
const REFETCH_MS = 1000;
const STATES = ["running", "waiting", "parked", "done", "unverified", "quarantined", "held", "cancelled"];

export function makeUnits(root, { address, openUnit }) {
  const campaign = el(
    "select",
    { "aria-label": "Campaign", onchange: () => filter("campaign", campaign.value) },
    el("option", { value: "", text: "All campaigns" }),
  );
  const state = el(
    "select",
    { "aria-label": "State", onchange: () => filter("state", state.value) },
    el("option", { value: "", text: "All states" }),
    ...STATES.map((each) => el("option", { value: each, text: each })),
  );
  const columns = el(
    "div",
    { class: "unit-head", "aria-hidden": "true" },
    ...["Unit", "State", "Account", "When", "Why"].map((text) => el("span", { text })),
  );
  const rows = el("div", { class: "unit-rows", role: "rowgroup" });
  const view = el("div", { class: "unit-view", role: "table", "aria-label": "Units", tabindex: "0" }, rows);
  const foot = el("p", { class: "unit-foot", role: "status" });
  const empty = emptyState("No units here", "", []);
  root.querySelector(".controls").append(campaign, state);
  root.querySelector(".body").append(columns, view, empty, foot);

  const parts = new Map(); // row number -> its element
  let pages = new Pages(PAGE);
  let generation = 0;
  let total = null;
  let isCompact = false;
  const loading = new Set();
  const refresh = throttled(reloadVisible, REFETCH_MS);

  view.addEventListener("scroll", draw, { passive: true });
  view.addEventListener("keydown", onKey);
  new ResizeObserver(() => {
    isCompact = view.clientWidth < COMPACT_BELOW;
    root.classList.toggle("compact", isCompact);
    draw();
  }).observe(view);

  function filter(name, value) {
    address.set(name, value);
    restart();
  }

  function restart() {
    generation += 1;
    pages = new Pages(PAGE);
    loading.clear();
    view.scrollTop = 0;
    campaign.value = address.get("campaign");
    state.value = address.get("state");
    draw();
  }

  function rowHeight() {
    return isCompact ? CARD : ROW;
  }

  async function load(page) {
    if (loading.has(page)) return;
    loading.add(page);
    const mine = generation;
    const query = new URLSearchParams({ limit: String(PAGE) });
    for (const name of ["campaign", "state"]) if (address.get(name)) query.set(name, address.get(name));
    if (pages.cursors[page] !== null) query.set("cursor", pages.cursors[page]);
    try {
      const answer = await get(`/v1/units?${query}`);
      if (mine !== generation) return;
      loading.delete(page);
      pages.keep(page, answer.units, answer.cursor);
      draw();
    } catch (error) {
      if (mine !== generation) return;
      loading.delete(page);
      setText(foot, `Cannot load the units: ${error.message}`);
    }
  }

  function visibleRows() {
    const height = rowHeight();
    const first = Math.max(0, Math.floor(view.scrollTop / height) - OVERSCAN);
    const last = Math.min(pages.length, Math.ceil((view.scrollTop + view.clientHeight) / height) + OVERSCAN);
    return [first, last];
  }

  function draw() {
    const height = rowHeight();
    rows.style.height = `${pages.length * height}px`;
    const [first, last] = visibleRows();
    for (const page of pagesIn(first, last)) if (!pages.items.has(page)) load(page);
    const spare = [];
    for (const [number, part] of parts) {
      if (number >= first && number < last) continue;
      parts.delete(number);
      spare.push(part);
    }
    for (let number = first; number < last; number += 1) {
      let part = parts.get(number);
      if (!part) {
        part = spare.pop() ?? unitRow(openUnit);
        parts.set(number, part);
        if (!part.node.isConnected) rows.append(part.node);
      }
      part.node.style.transform = `translateY(${number * height}px)`;
      setAttribute(part.node, "aria-rowindex", String(number + 1));
      part.update(pages.at(number));
    }
    for (const part of spare) part.node.remove();
    const isEmpty = pages.isComplete && pages.length === 0;
    show(empty, isEmpty);
    show(view, !isEmpty);
    show(columns, !isEmpty);
    if (isEmpty) showEmpty();
    setAttribute(view, "aria-rowcount", String(total ?? -1));
    showFoot();
  }

  function showEmpty() {
    const isFiltered = address.get("campaign") || address.get("state");
    setText(empty.children[0], isFiltered ? "No unit matches" : "No units yet");
    setText(
      empty.children[1],
      isFiltered
        ? "Choose another campaign or state above."
        : "The units of a plan appear here once it is added: paceline add plan.toml",
    );
  }

  function pagesIn(first, last) {
    const [from, to] = [pages.pageOf(first), pages.pageOf(Math.max(first, last - 1))];
    return Array.from({ length: to - from + 1 }, (_, at) => from + at);
  }

  function showFoot() {
    if (!pages.items.size || pages.length === 0 || total === null) {
      setText(foot, pages.items.size ? "" : "Loading…");
      return;
    }
    const height = rowHeight();
    const all = Math.max(total, pages.isComplete ? pages.length : 0);
    const from = Math.floor(view.scrollTop / height) + 1;
    const to = Math.min(all, Math.floor((view.scrollTop + view.clientHeight) / height));
    setText(foot, `${count(from)}–${count(Math.max(from, to))} of ${plural(all, "unit")}`);
  }

  function onKey(event) {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    const number = [...parts].find(([, part]) => part.node.contains(document.activeElement))?.[0];
    if (by === undefined || number === undefined) return;
    event.preventDefault();
    const target = Math.max(0, Math.min(pages.length - 1, number + by));
    const [height, top] = [rowHeight(), target * rowHeight()];
    if (top < view.scrollTop) view.scrollTop = top;
    else if (top + height > view.scrollTop + view.clientHeight) view.scrollTop = top + height - view.clientHeight;
    draw();
    parts.get(target)?.focus();
  }

  /** Reload the visible pages after an event of a unit. */
  async function reloadVisible() {
    for (const page of pagesIn(...visibleRows())) await load(page);
  }

  function update(overview) {
    const names = overview.campaigns.map((each) => each.name);
    syncOptions(campaign, names);
    if (campaign.value !== address.get("campaign")) campaign.value = address.get("campaign");
    total = totalOf(overview, address.get("campaign"), address.get("state"));
    showFoot();
    if (pages.isComplete && total > pages.length) refresh();
  }

  restart();
  return {
    update,
    refresh,
    restart,
    show(name, phase) {
      address.set("campaign", name);
      address.set("state", phase);
      restart();
      root.scrollIntoView({ block: "nearest" });
      view.focus();
    },
    tick() {
      for (const part of parts.values()) part.tick();
    },
  };
}

function totalOf({ campaigns }, name, state) {
  let sum = 0;
  for (const each of campaigns) {
    if (name && each.name !== name) continue;
    const { parked, ...stored } = each.units;
    if (!state) sum += Object.values(stored).reduce((a, b) => a + b, 0);
    else sum += state === "waiting" ? stored.todo - parked : state === "parked" ? parked : stored[state];
  }
  return sum;
}

function syncOptions(select, names) {
  const shown = [...select.options].slice(1).map((option) => option.value);
  if (shown.length === names.length && shown.every((name, at) => name === names[at])) return;
  select.replaceChildren(select.options[0], ...names.map((name) => el("option", { value: name, text: name })));
}

function unitRow(openUnit) {
  let unit = null;
  const head = el("span", { class: "head" });
  const tail = el("span", { class: "tail" }); // never truncated, because the end of the id distinguishes units
  const name = el("button", { type: "button", class: "link", onclick: () => unit && openUnit(unit.id) }, head, tail);
  const symbol = icon("waiting");
  const word = el("span");
  const account = el("span", { class: "cell account", role: "cell" });
  const when = el("span", { class: "cell when", role: "cell" });
  const why = el("span", { class: "cell why", role: "cell" });
  const state = el("span", { class: "cell state", role: "cell" }, symbol, word);
  const node = el(
    "div",
    { class: "unit-row", role: "row" },
    el("span", { class: "cell name", role: "cell" }, name),
    state,
    account,
    when,
    why,
  );
  node.addEventListener("click", (event) => {
    if (!name.contains(event.target) && unit && getSelection().isCollapsed) openUnit(unit.id);
  });

  function update(latest) {
    unit = latest ?? null;
    node.classList.toggle("blank", unit === null);
    if (unit === null) {
      for (const each of [head, tail, word, account, when, why]) setText(each, "");
      return;
    }
    const phase = phaseOf(unit);
    setText(head, unit.id.slice(0, -TAIL_LENGTH));
    setText(tail, unit.id.slice(-TAIL_LENGTH));
    setAttribute(node, "data-state", phase);
    setAttribute(node, "data-unit", unit.id);
    setIcon(symbol, phase);
    setText(word, phase);
    setText(account, unit.account ?? "");
    setText(why, whyOf(unit, phase));
    setAttribute(why, "title", unit.reason || null);
    tick();
  }

  function tick() {
    if (unit) setText(when, whenOf(unit, phaseOf(unit)));
  }

  return { node, update, tick, focus: () => name.focus({ preventScroll: true }) };
}

function whenOf(unit, phase) {
  if (phase === "running") return unit.started_at ? `for ${ago(unit.started_at).replace(" ago", "")}` : "";
  if (phase === "parked") return until(unit.resume_at);
  return unit.ended_at ? clockTime(unit.ended_at) : "";
}

function whyOf(unit, phase) {
  const tries = unit.attempts ? `${plural(unit.attempts, "attempt")} charged` : "";
  const reason = phase === "done" || phase === "running" ? "" : (unit.reason ?? "");
  return [reason, tries].filter(Boolean).join("; ");
}
