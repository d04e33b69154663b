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
const TYPING_MS = 250; // a search starts when the typing pauses
const FILTERS = ["campaign", "state", "search"];
const COLUMNS = ["Unit", "State", "Account", "When", "Why"];
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
  const search = el("input", {
    type: "search",
    id: "unit-search",
    "aria-label": "Search units",
    title: "A part of the id, reason or account",
    placeholder: "Search",
    autocomplete: "off",
    spellcheck: "false",
    maxlength: "200",
    oninput: () => {
      clearTimeout(typing);
      typing = setTimeout(() => filter("search", search.value.trim()), TYPING_MS);
    },
  });
  const order = el(
    "select",
    { "aria-label": "Order", onchange: () => filter("order", order.value) },
    el("option", { value: "attention", text: "Active first" }),
    el("option", { value: "plan", text: "Plan order" }),
  );
  const columns = el(
    "div",
    { class: "unit-head", role: "row", "aria-rowindex": "1" },
    ...COLUMNS.map((text) => el("span", { text, role: "columnheader" })),
  );
  const rows = el("div", { class: "unit-rows", role: "presentation" });
  const view = el("div", { class: "unit-view", role: "rowgroup", tabindex: "-1" }, rows);
  const table = el(
    "div",
    { class: "unit-table", role: "table", "aria-label": "Units" },
    el("div", { role: "rowgroup" }, columns),
    view,
  );
  const foot = el("p", { class: "unit-foot", role: "status" });
  const empty = emptyState("No units here", "", []);
  root.querySelector(".controls").append(search, campaign, state, order);
  root.querySelector(".body").append(table, empty, foot);

  const parts = new Map(); // row number -> its element
  let pages = new Pages(PAGE);
  let generation = 0;
  let total = null;
  let overview = null;
  let causes = null; // of waiting, at the last overview: no event of a unit is emitted when they change
  let current = 0; // the row that Tab reaches; the arrow keys move it
  let typing = 0;
  let isCompact = false;
  const loading = new Set();
  const refresh = throttled(reloadVisible, REFETCH_MS);

  view.addEventListener("scroll", draw, { passive: true });
  view.addEventListener("keydown", onKey);
  view.addEventListener("focusin", () => {
    current = focusedRow() ?? current;
    drawTabStop();
  });
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
    current = 0;
    campaign.value = address.get("campaign");
    state.value = address.get("state");
    order.value = address.get("order");
    if (search !== document.activeElement) search.value = address.get("search");
    countAll();
    draw();
  }

  /** How many units the filters leave, from the last overview; unknown while a text is searched. */
  function countAll() {
    const isKnown = overview !== null && !address.get("search");
    total = isKnown ? totalOf(overview, address.get("campaign"), address.get("state")) : null;
  }

  function rowHeight() {
    return isCompact ? CARD : ROW;
  }

  async function load(page) {
    if (loading.has(page)) return;
    loading.add(page);
    const mine = generation;
    const query = new URLSearchParams({ limit: String(PAGE), order: address.get("order") });
    for (const name of FILTERS) if (address.get(name)) query.set(name, address.get(name));
    if (pages.cursors[page] !== null) query.set("cursor", pages.cursors[page]);
    try {
      const answer = await get(`/v1/units?${query}`);
      if (mine !== generation) return;
      loading.delete(page);
      const found = answer.units.map((unit) => ({ ...unit, waits_for: answer.waits_for[unit.id] }));
      pages.keep(page, found, answer.cursor);
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
      if (part.node.contains(document.activeElement)) view.focus({ preventScroll: true }); // its row has scrolled away
    }
    for (let number = first; number < last; number += 1) {
      let part = parts.get(number);
      if (!part) {
        part = spare.pop() ?? unitRow(openUnit);
        parts.set(number, part);
        if (!part.node.isConnected) rows.append(part.node);
      }
      part.node.style.transform = `translateY(${number * height}px)`;
      setAttribute(part.node, "aria-rowindex", String(number + 2)); // the head is the first
      part.update(pages.at(number));
    }
    for (const part of spare) part.node.remove();
    sortRows(first, last);
    drawTabStop();
    const isEmpty = pages.isComplete && pages.length === 0;
    show(empty, isEmpty);
    show(table, !isEmpty);
    if (isEmpty) showEmpty();
    setAttribute(table, "aria-rowcount", String(total === null ? -1 : total + 1));
    showFoot();
  }

  /** Put the recycled rows into their order for screen readers. The focused row stays where it is: moving it would end the focus. */
  function sortRows(first, last) {
    let next = rows.firstElementChild;
    for (let number = first; number < last; number += 1) {
      const { node } = parts.get(number);
      if (node.contains(document.activeElement)) {
        while (next !== node) {
          const misplaced = next;
          next = next.nextElementSibling;
          rows.append(misplaced);
        }
      }
      if (node === next) next = next.nextElementSibling;
      else rows.insertBefore(node, next);
    }
  }

  /** Let Tab reach one row only: the current one, or the first in sight. */
  function drawTabStop() {
    const height = rowHeight();
    const firstSeen = Math.ceil(view.scrollTop / height);
    const isSeen = current >= firstSeen && (current + 1) * height <= view.scrollTop + view.clientHeight;
    const stop = isSeen ? current : firstSeen;
    for (const [number, part] of parts) part.setTabStop(number === stop);
  }

  function focusedRow() {
    return [...parts].find(([, part]) => part.node.contains(document.activeElement))?.[0];
  }

  function showEmpty() {
    const isFiltered = FILTERS.some((name) => address.get(name));
    setText(empty.children[0], isFiltered ? "No unit matches" : "No units yet");
    setText(
      empty.children[1],
      isFiltered
        ? "Search for another text, or choose another campaign or state above."
        : "The units of a plan appear here once it is added: paceline add plan.toml",
    );
  }

  function pagesIn(first, last) {
    const [from, to] = [pages.pageOf(first), pages.pageOf(Math.max(first, last - 1))];
    return Array.from({ length: to - from + 1 }, (_, at) => from + at);
  }

  function showFoot() {
    if (address.get("search")) {
      const found = plural(pages.found, "unit");
      setText(foot, pages.isComplete ? `${found} found` : `${found} found so far`);
      return;
    }
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
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined || pages.length === 0) return;
    const number = focusedRow() ?? current - Math.sign(by); // of the view itself: to the current row
    event.preventDefault();
    const target = Math.max(0, Math.min(pages.length - 1, number + by));
    const [height, top] = [rowHeight(), target * rowHeight()];
    if (top < view.scrollTop) view.scrollTop = top;
    else if (top + height > view.scrollTop + view.clientHeight) view.scrollTop = top + height - view.clientHeight;
    draw();
    current = target;
    parts.get(target)?.focus();
  }

  function focus() {
    root.scrollIntoView({ block: "nearest" });
    const [first] = visibleRows();
    (parts.get(current) ?? parts.get(first))?.focus();
    if (!view.contains(document.activeElement)) view.focus({ preventScroll: true });
  }

  /** Reload the visible pages after an event of a unit. */
  async function reloadVisible() {
    for (const page of pagesIn(...visibleRows())) await load(page);
  }

  function update(latest) {
    overview = latest;
    const names = overview.campaigns.map((each) => each.name);
    syncOptions(campaign, names);
    if (campaign.value !== address.get("campaign")) campaign.value = address.get("campaign");
    countAll();
    showFoot();
    const before = causes;
    causes = causesOf(overview);
    if (before !== null && before !== causes) refresh();
    if (total !== null && pages.isComplete && total > pages.length) refresh();
  }

  restart();
  return {
    update,
    refresh,
    restart,
    show(name, phase) {
      address.set("campaign", name);
      address.set("state", phase);
      address.set("search", "");
      restart();
      focus();
    },
    focus,
    search() {
      root.scrollIntoView({ block: "nearest" });
      search.focus();
      search.select();
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

function causesOf({ status, campaigns, waits }) {
  return JSON.stringify([status.engine, campaigns.map((each) => [each.state, each.pause_reason]), waits]);
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
  const name = el("button", { type: "button", class: "link", onclick: () => unit && openUnit(unit.id), tabindex: "-1" }, head, tail);
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
      setAttribute(name, "aria-label", "Loading");
      setAttribute(node, "data-unit", null);
      return;
    }
    const phase = phaseOf(unit);
    setText(head, unit.id.slice(0, -TAIL_LENGTH));
    setText(tail, unit.id.slice(-TAIL_LENGTH));
    setAttribute(name, "aria-label", unit.id); // whole: the two parts would be read as two words
    setAttribute(node, "data-state", phase);
    setAttribute(node, "data-unit", unit.id);
    setIcon(symbol, phase);
    setText(word, phase);
    setText(account, unit.account ?? "");
    const reason = whyOf(unit, phase);
    setText(why, reason);
    setAttribute(why, "title", reason || null);
    tick();
  }

  function tick() {
    if (unit) setText(when, whenOf(unit, phaseOf(unit)));
  }

  return {
    node,
    update,
    tick,
    focus: () => name.focus({ preventScroll: true }),
    setTabStop: (isStop) => setAttribute(name, "tabindex", isStop ? "0" : "-1"),
  };
}

function whenOf(unit, phase) {
  if (phase === "running") return unit.started_at ? `for ${ago(unit.started_at).replace(" ago", "")}` : "";
  if (phase === "parked") return until(unit.resume_at);
  return unit.ended_at ? clockTime(unit.ended_at) : "";
}

function whyOf(unit, phase) {
  const tries = unit.attempts ? `${plural(unit.attempts, "attempt")} charged` : "";
  const reason = phase === "done" || phase === "running" ? "" : (unit.waits_for ?? unit.reason ?? "");
  return [reason, tries].filter(Boolean).join("; ");
}
