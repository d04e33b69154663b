// The side panel of one unit: why it waits, its attempts, its cost, its transcript, its answer, its change and its prompt.

import { makeDiffView } from "./diff_view.js";
import { actionButton, el, icon, partsOf, setAttribute, setIcon, setText, show, syncChildren } from "./dom.js";
import { ago, clockSeconds, clockTime, count, duration, fullTime, NOTHING, now, phaseOf, until } from "./format.js";
import { runAction } from "./notices.js";
import { get } from "./requests.js";
import { throttled } from "./throttle.js";
import { drawTranscript } from "./transcript.js";
import { hintText, makeUnitActions } from "./unit_actions.js";
import { makeUnitAttempts } from "./unit_attempts.js";

const TABS = [
  ["screen", "Transcript"],
  ["answer", "Answer"],
  ["diff", "Diff"],
  ["checks", "Checks"],
  ["stderr", "Errors"],
  ["prompt", "Prompt"],
  ["history", "History"],
];
const REFETCH_MS = 1000;
const DOWNLOAD_BYTES = 4 << 20; // the most that the server sends at once
const NEAR_END = 24; // pixels

export function makeUnitPanel(dialog, { address, refetch: refetchPage }) {
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
  const follow = el("input", { type: "checkbox", checked: true, onchange: () => follow.checked && scrollToEnd() });
  const followLabel = el("label", {}, follow, "Follow");
  const raw = el("input", { type: "checkbox", role: "switch", onchange: showRaw });
  const rawLabel = el("label", { title: "What the agent printed, as it is" }, raw, "Raw");
  const small = { class: "button small", isHarmless: true };
  const copy = actionButton({ ...small, icon: "copy" }, "Copy", () => runAction(copyText, "Copied."));
  const download = actionButton({ ...small, icon: "download" }, "Download", () => runAction(downloadText));
  const tools = el("div", { class: "pane-tools" }, rawLabel, followLabel, copy, download);
  const pane = el("div", { class: "pane", role: "tabpanel", id: "unit-pane" }, tools, note, text, history, diff.node);
  const actions = makeUnitActions(() => {
    refetch.atOnce();
    refetchPage();
  });
  const attempts = makeUnitAttempts(chooseAttempt);
  const banner = el("p", { class: "banner held", hidden: true }, icon("warning"), el("span"));
  dialog.append(
    el("header", {}, title, state, close),
    banner,
    reasons,
    actions.node,
    facts,
    attempts.node,
    tabs,
    pane,
  );

  let chosen = "screen";
  let id = "";
  let unit = null;
  let why = null;
  let log = null;
  let logProblem = "";
  let attempt = ""; // an earlier one; "" for the last
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
    [logProblem, attempt, follow.checked] = ["", "", true];
    diff.close();
    address.set("unit", unitId);
    draw();
    if (!dialog.open) dialog.showModal();
    refetch.atOnce();
  }

  /** Fetch the unit, the reasons it waits and its log. Each is shown as it comes, also if another one fails. */
  async function fetchUnit() {
    const mine = id;
    if (!mine) return;
    const path = pathOf(mine);
    const problems = new Set();
    const load = async (part, apply) => {
      try {
        const answer = await get(`${path}${part}`);
        if (mine === id) apply(answer);
      } catch (error) {
        problems.add(error.message);
      }
      if (mine === id) draw();
    };
    await Promise.all([
      load("", (answer) => (unit = answer)).then(() => fetchLog(mine)),
      load("/why", (answer) => (why = answer)),
    ]);
    if (mine !== id) return;
    setText(banner.lastChild, [...problems].join(" "));
    show(banner, problems.size > 0);
  }

  /** The output of an old attempt is removed after a while. That is said in its place, and hides nothing else. */
  async function fetchLog(mine) {
    if (mine !== id || !unit?.attempt) return;
    const wanted = attempt;
    let [found, problem] = [null, ""];
    try {
      found = await get(logPath(id, wanted));
    } catch (error) {
      problem = error.message;
    }
    if (mine !== id || wanted !== attempt) return;
    [log, logProblem] = [found, problem];
    draw();
  }

  function chooseAttempt(wanted) {
    [attempt, log, logProblem] = [wanted, null, ""];
    if (!isTail(chosen)) chosen = "screen";
    draw();
    fetchLog(id);
  }

  /** The channel whose end is shown as it was printed; "" where something else is shown. */
  function shownChannel() {
    return chosen === "stderr" ? "stderr" : chosen === "screen" && raw.checked ? "stdout" : "";
  }

  function shownText() {
    if (shownChannel()) return log?.[shownChannel()] ?? "";
    if (chosen === "screen" && attempt) return log?.transcript ?? "";
    return textOf(chosen, unit);
  }

  function showRaw() {
    follow.checked = true;
    draw();
  }

  async function copyText() {
    const value = shownText();
    if (navigator.clipboard) await navigator.clipboard.writeText(value);
    else throw new Error("This browser lets only pages of https or of this machine copy. Use Download.");
  }

  /** Save the text of the tab as a file; of an output more than is shown. */
  async function downloadText() {
    const channel = shownChannel();
    const whole = channel ? await get(`${logPath(id, attempt, channel)}&tail_bytes=${DOWNLOAD_BYTES}`) : null;
    const url = URL.createObjectURL(new Blob([channel ? whole[channel] : shownText()], { type: "text/plain" }));
    const what = channel || (chosen === "screen" ? "transcript" : chosen);
    const name = `${id.replace(/[^\w.-]+/g, "-")}.${what}.txt`;
    el("a", { href: url, download: name }).click();
    URL.revokeObjectURL(url);
  }

  function scrollToEnd() {
    text.scrollTop = text.scrollHeight;
  }

  text.addEventListener("scroll", () => {
    if (isTail(chosen)) follow.checked = text.scrollHeight - text.scrollTop - text.clientHeight < NEAR_END;
  });

  function choose(name) {
    chosen = name;
    follow.checked = true;
    draw();
    if (!isTail(name)) text.scrollTop = 0;
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
    actions.update(
      unit,
      why ? [why, ...why.others].flatMap((each) => (each.hint ?? "").split("; ")) : [],
    );
    attempts.update(unit?.history ?? [], attempt);
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
    show(tools, false);
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
    const shown = shownText();
    const channel = shownChannel();
    show(tools, Boolean(shown) || chosen === "screen");
    show(rawLabel, chosen === "screen");
    for (const tool of [copy, download]) show(tool, Boolean(shown));
    show(followLabel, Boolean(shown) && isTail(chosen));
    show(text, Boolean(shown));
    drawTranscript(text, shown, chosen === "screen" && !channel);
    if (isTail(chosen) && follow.checked) scrollToEnd();
    const isCut = log?.truncated && channel;
    show(note, !shown || isCut);
    const isAwaited = channel && unit?.attempt && log === null;
    const missing = isAwaited ? "Loading…" : emptyText(chosen, unit);
    const why = logProblem && isTail(chosen) ? logProblem : missing;
    setText(note, shown ? "Only the end is shown; paceline logs prints everything." : why);
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

function logPath(id, attempt, channel = "") {
  const query = new URLSearchParams({ ...(attempt ? { attempt } : {}), ...(channel ? { channel } : {}) });
  return `${pathOf(id)}/log?${query}`;
}

function isTail(name) {
  return name === "screen" || name === "stderr";
}

function textOf(name, unit) {
  if (name === "prompt") return unit?.prompt ?? "";
  if (name === "screen") return unit?.screen ?? "";
  if (name === "answer") return unit?.answer ?? "";
  return (unit?.checks ?? []).map(checkText).join("\n\n");
}

function checkText(check, place) {
  const ended = check.exit_code === 0 ? "passed" : `failed (exit code ${check.exit_code ?? NOTHING})`;
  return `Check ${place + 1}: ${check.reason ?? ended} after ${duration(check.seconds)}\n${check.tail ?? ""}`.trimEnd();
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
      const left = hintText(why.hint);
      setText(hint, left);
      show(hint, left !== "");
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
    ["Parked", unit.parks === 0 ? NOTHING : unit.parks === 1 ? "once" : `${count(unit.parks)} times`],
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
