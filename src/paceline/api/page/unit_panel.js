// The side panel of one unit: why it waits, its attempts, its cost, its transcript, its answer, its change and its prompt.

import { makeDiffView } from "./diff_view.js";
import { el, icon, partsOf, setAttribute, setIcon, setText, show, syncChildren } from "./dom.js";
import { ago, clockSeconds, clockTime, count, duration, fullTime, NOTHING, now, phaseOf, until } from "./format.js";
import { get } from "./requests.js";
import { throttled } from "./throttle.js";

const TABS = [
  ["screen", "Transcript"],
  ["answer", "Answer"],
  ["diff", "Diff"],
  ["checks", "Checks"],
  ["stdout", "Output"],
  ["stderr", "Errors"],
  ["prompt", "Prompt"],
  ["history", "History"],
];
const REFETCH_MS = 1000;

export function makeUnitPanel(dialog, address) {
  const title = el("h2", { id: "unit-title" });
  const symbol = icon("waiting");
  const word = el("span");
  const state = el("p", { class: "badge large" }, symbol, word);
  const close = el(
    "button",
    { type: "button", class: "button small", "aria-label": "Close", onclick: () => dialog.close() },
    icon("close"),
  );
  const reasons = el("ul", { class: "reasons" });
  const facts = el("dl", { class: "unit-facts" });
  const tabs = el("div", { class: "tabs", role: "tablist", "aria-label": "Details of the unit" });
  const text = el("pre", { class: "text", tabindex: "0" });
  const note = el("p", { class: "note" });
  const history = el("ol", { class: "event-list" });
  const diff = makeDiffView();
  const pane = el("div", { class: "pane", role: "tabpanel", id: "unit-pane" }, note, text, history, diff.node);
  const banner = el("p", { class: "banner held", hidden: true }, icon("warning"), el("span"));
  dialog.append(el("header", {}, title, state, close), banner, reasons, facts, tabs, pane);

  let chosen = "screen";
  let id = "";
  let unit = null;
  let why = null;
  let log = null;
  const refetch = throttled(fetchUnit, REFETCH_MS);

  for (const [name, label] of TABS) {
    const tab = el("button", {
      type: "button",
      role: "tab",
      id: `tab-${name}`,
      "aria-controls": "unit-pane",
      text: label,
      onclick: () => choose(name),
    });
    tabs.append(tab);
  }
  tabs.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const names = TABS.map(([name]) => name);
    choose(names[(names.indexOf(chosen) + by + names.length) % names.length]);
    document.getElementById(`tab-${chosen}`).focus();
  });
  dialog.addEventListener("close", () => {
    id = "";
    address.clear("unit");
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // the backdrop
  });

  function open(unitId) {
    if (!unitId) {
      if (dialog.open) dialog.close();
      return;
    }
    if (unitId === id && dialog.open) return;
    [id, unit, why, log, chosen] = [unitId, null, null, null, "screen"];
    diff.close();
    address.set("unit", unitId);
    draw();
    if (!dialog.open) dialog.showModal();
    refetch.atOnce();
  }

  async function fetchUnit() {
    const mine = id;
    if (!mine) return;
    const path = pathOf(mine);
    let problem = "";
    try {
      const found = await get(path);
      const reason = await get(`${path}/why`);
      const printed = found.attempt === null ? null : await logOf(path);
      if (mine === id) [unit, why, log] = [found, reason, printed];
    } catch (error) {
      problem = error.message;
    }
    if (mine !== id) return;
    setText(banner.lastChild, problem);
    show(banner, problem !== "");
    draw();
  }

  function choose(name) {
    chosen = name;
    draw();
    text.scrollTop = isTail(name) ? text.scrollHeight : 0;
  }

  function draw() {
    setText(title, id);
    const phase = unit ? phaseOf(unit) : "waiting";
    show(state, unit !== null);
    setIcon(symbol, phase);
    setText(word, phase);
    setAttribute(state, "data-state", phase);
    syncChildren(
      reasons,
      why ? [why, ...why.others].map((each, place) => ({ ...each, place })) : [],
      (each) => each.place,
      () => reasonItem(),
    );
    syncChildren(
      facts,
      unit ? factsOf(unit) : [],
      ([name]) => name,
      ([name]) => factItem(name),
    );
    for (const [name] of TABS) {
      const tab = document.getElementById(`tab-${name}`);
      setAttribute(tab, "aria-selected", String(name === chosen));
      setAttribute(tab, "tabindex", name === chosen ? "0" : "-1");
    }
    setAttribute(pane, "aria-labelledby", `tab-${chosen}`);
    drawPane();
  }

  function drawPane() {
    const isHistory = chosen === "history";
    const isDiff = chosen === "diff" && unit !== null;
    show(history, isHistory);
    show(diff.node, isDiff);
    if (isDiff) {
      show(text, false);
      show(note, false);
      diff.open(pathOf(id), unit);
      return;
    }
    if (isHistory) {
      show(text, false);
      show(note, !unit?.history.length);
      setText(note, "No events yet.");
      syncChildren(
        history,
        unit ? [...unit.history].reverse() : [],
        (event) => event.id,
        (event) => ({ node: historyRow(event) }),
      );
      return;
    }
    const shown = textOf(chosen, unit, log);
    const isAtEnd = text.scrollHeight - text.scrollTop - text.clientHeight < 24;
    show(text, Boolean(shown));
    setText(text, shown);
    if (isTail(chosen) && isAtEnd) text.scrollTop = text.scrollHeight;
    const isCut = log?.truncated && (chosen === "stdout" || chosen === "stderr");
    show(note, !shown || isCut);
    setText(note, shown ? "Only the end is shown; paceline logs prints everything." : emptyText(chosen, unit));
  }

  function tick() {
    if (!id || !unit) return;
    for (const part of partsOf(reasons)) part.tick();
    syncChildren(
      facts,
      factsOf(unit),
      ([name]) => name,
      ([name]) => factItem(name),
    );
    if (phaseOf(unit) === "running") refetch();
  }

  return {
    open,
    refetch,
    tick,
    get id() {
      return id;
    },
  };
}

function pathOf(id) {
  return `/v1/units/${encodeURIComponent(id)}`;
}

/** The output of an old attempt is removed after a while; what the unit did is still worth showing. */
async function logOf(path) {
  try {
    return await get(`${path}/log`);
  } catch {
    return null;
  }
}

function isTail(name) {
  return name === "screen" || name === "stdout" || name === "stderr";
}

function textOf(name, unit, log) {
  if (name === "prompt") return unit?.prompt ?? "";
  if (name === "screen") return unit?.screen ?? "";
  if (name === "answer") return unit?.answer ?? "";
  if (name === "checks") return (unit?.checks ?? []).map(checkText).join("\n\n");
  return log?.[name] ?? "";
}

function checkText(check, place) {
  const ended = check.exit_code === 0 ? "passed" : `failed (exit code ${check.exit_code ?? NOTHING})`;
  return `Check ${place + 1}: ${check.reason ?? ended} after ${duration(check.seconds)}\n${check.tail}`.trimEnd();
}

function costText({ agent, cost: { billed, imputed } }) {
  const parts = [
    billed === null ? "" : `${dollars(billed)} billed`,
    imputed === null ? "" : `${dollars(imputed)} imputed`,
  ].filter(Boolean);
  return parts.join(" + ") || unknownTo(agent);
}

function dollars(amount) {
  return amount === 0 || amount >= 0.01 ? `$${amount.toFixed(2)}` : `$${amount.toPrecision(2)}`;
}

/** What is not known of an agent's work is unknown; a command has no tokens and no cost. */
function unknownTo(agent) {
  return agent === null || agent === "command" ? NOTHING : "unknown";
}

function tokensText({ agent, tokens }) {
  if (tokens === null) return unknownTo(agent);
  const { input, output, cache_read: read, cache_write: write } = tokens;
  const cache = read || write ? `, ${count(read)} cache read, ${count(write)} cache write` : "";
  return `${count(input)} input, ${count(output)} output${cache}`;
}

function changeText({ files_changed: files, lines_added: added, lines_removed: removed }) {
  if (files === null) return NOTHING;
  const lines = added === null || removed === null ? "" : `, +${count(added)} −${count(removed)} lines`;
  return `${count(files)} ${files === 1 ? "file" : "files"}${lines}`;
}

function emptyText(name, unit) {
  if (!unit) return "Loading…";
  if (name === "prompt") return "No prompt.";
  if (name === "answer") return "No answer.";
  if (name === "checks") return "No check has run.";
  return unit.attempt ? "No output." : "Not started yet.";
}

function reasonItem() {
  const detail = el("p", { class: "reason" });
  const times = el("p", { class: "note" });
  const hint = el("p", { class: "hint" });
  let last = null;
  const tick = () => {
    if (!last) return;
    const parts = [
      last.scope,
      last.since === null ? "" : `since ${clockTime(last.since)} (${ago(last.since)})`,
      last.until === null ? "" : `until ${clockTime(last.until)} (${until(last.until)})`,
    ];
    setText(times, parts.filter(Boolean).join(" · "));
  };
  return {
    node: el("li", {}, detail, times, hint),
    tick,
    update(why) {
      last = why;
      setText(detail, why.detail);
      setText(hint, why.hint ?? "");
      show(hint, Boolean(why.hint));
      tick();
    },
  };
}

function factsOf(unit) {
  const ended =
    unit.ended_at !== null && (unit.started_at === null || unit.ended_at >= unit.started_at) ? unit.ended_at : null;
  return [
    ["Charged attempts", count(unit.attempts)],
    ["Attempts", count(unit.tries)],
    ["Parked", unit.parks === 1 ? "once" : `${count(unit.parks)} times`],
    ["Phase", unit.phase ?? NOTHING],
    ["Account", unit.account ?? NOTHING],
    ["Model", unit.model ?? NOTHING],
    ["Cost", costText(unit)],
    ["Tokens", tokensText(unit)],
    ["Turns", unit.turns === null ? NOTHING : count(unit.turns)],
    ["Change", changeText(unit)],
    ["Branch", unit.branch ?? NOTHING],
    ["Started", unit.started_at === null ? NOTHING : clockTime(unit.started_at), fullTime(unit.started_at)],
    ["Duration", unit.started_at === null ? NOTHING : duration((ended ?? now()) - unit.started_at)],
    ["Resumes", unit.resume_at === null ? NOTHING : `${clockTime(unit.resume_at)}, ${until(unit.resume_at)}`],
    ["Exit code", unit.exit_code ?? NOTHING],
    ["Conversation", unit.session_id ?? NOTHING],
    ["Folder", unit.cwd || NOTHING],
    ["Output file", unit.output ?? NOTHING],
    ["Reason", unit.reason || NOTHING],
  ].filter(([, text]) => text !== NOTHING);
}

function factItem(name) {
  const value = el("dd");
  return {
    node: el("div", { data: { fact: name } }, el("dt", { text: name }), value),
    update([, text, title]) {
      setText(value, text);
      setAttribute(value, "title", title ?? null);
    },
  };
}

function historyRow(event) {
  const what = event.name.replace(/^unit\./, "").replace(/[._]/g, " ");
  const { reason, resume_at: resumeAt } = event.fields;
  const detail = [event.scope ? `on ${event.scope}` : "", reason, resumeAt ? `resumes at ${clockTime(resumeAt)}` : ""]
    .filter(Boolean)
    .join(", ");
  return el(
    "li",
    { class: "event" },
    el("time", { text: clockSeconds(event.at), title: fullTime(event.at) }),
    el("span", { class: "what", text: what }),
    el("span", { class: "rest", text: detail }),
  );
}
