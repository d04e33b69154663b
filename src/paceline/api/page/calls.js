// API calls through the gateway: what runs and waits, what each key has cost, and the keys themselves.

import { actionButton, el, setAttribute, setText, show, syncChildren } from "./dom.js";
import { clockSeconds, clockTime, compact, count, countdown, dollars, duration, NOTHING, now } from "./format.js";
import { confirmAction, runAction } from "./notices.js";
import { get, send } from "./requests.js";
import { throttled } from "./throttle.js";

const REFETCH_MS = 2000;
const LOOK_MS = 30_000; // how often an idle gateway is asked whether it was ever used
const SHOWN = 8; // of those that wait or ended; the API has all of them
const ACTIONS = "Actions"; // a heading that only screen readers need
const OWN_TOKEN = "Paceline’s own token";

/** `onUsed()` is called when the gateway turns out to have been used before this day. */
export function makeCalls(root, onUsed) {
  const body = root.querySelector(".body");
  const aside = document.getElementById("calls-aside");
  const keys = table("of-keys", "Keys and their use in 30 days", ["Key", "Calls", "Tokens", "Cost", "Budget", ACTIONS]);
  const queue = table("of-queue", "Calls that wait", ["Model", "Key", "Waits for", "Since"]);
  const recent = table("of-recent", "Last calls", ["Time", "Model", "Key", "Status", "Waited", "Took", "Tokens", "Cost"]);
  body.append(keys.node, queue.node, recent.node);
  let isUsedNow = false;
  let wasUsed = false;
  const refetch = throttled(fetchCalls, REFETCH_MS);
  const look = throttled(fetchUse, LOOK_MS);

  async function fetchCalls() {
    let answers;
    try {
      answers = await Promise.all([get("/v1/gateway/requests"), get("/v1/gateway/spend?by=key"), get("/v1/keys")]);
    } catch {
      return; // app.js shows that the server is unreachable
    }
    const [requests, spent, { keys: known }] = answers;
    keys.update(keyRows(spent.rows, known), (name) => keyRow(name, revoke));
    queue.update(requests.waiting.slice(0, SHOWN).map((each) => [each.id, queueCells(each)]));
    recent.update(requests.recent.slice(0, SHOWN).map((each) => [each.id, recentCells(each)]));
  }

  /** The overview knows the calls of this day. Those of earlier days, and keys that nobody has used, count as use too. */
  async function fetchUse() {
    try {
      const [{ rows }, { keys: known }] = await Promise.all([get("/v1/gateway/spend?by=key"), get("/v1/keys")]);
      wasUsed = rows.length + known.length > 0;
    } catch {
      return; // a process that stands by, or none: the next overview asks again
    }
    if (wasUsed) onUsed();
  }

  async function revoke(name) {
    const text = "Calls that run finish. From a second later on calls with this key are refused. A revoked key never works again.";
    if (!(await confirmAction(`Revoke the key ${name}?`, text, "Revoke the key"))) return;
    const path = `/v1/keys/${encodeURIComponent(name)}`;
    if (await runAction(() => send("DELETE", path), `${name} is revoked.`)) root.focus({ preventScroll: true });
    refetch.atOnce();
  }

  return {
    get isUsed() {
      return isUsedNow || wasUsed;
    },
    update({ gateway }) {
      isUsedNow = isUsed(gateway);
      const isShown = isUsedNow || wasUsed;
      show(root, isShown);
      if (!isShown && gateway !== null) look();
      if (!isShown) return;
      setText(aside, gateway ? `${count(gateway.in_flight)} in flight, ${count(gateway.waiting)} waiting` : "");
      refetch();
    },
  };
}

/** Return whether calls came this day, or are there now. */
export function isUsed(gateway) {
  return gateway !== null && (gateway.requests_today > 0 || gateway.in_flight + gateway.waiting > 0);
}

/** Return the keys that work, by name, then what was spent with others. */
function keyRows(spent, known) {
  const rules = new Map(known.map((each) => [each.name, each]));
  const sums = new Map(spent.map((each) => [each.key ?? "", each]));
  const names = [...new Set([...rules.keys(), ...sums.keys()])];
  const rank = (name) => (rules.has(name) ? 0 : name === "" ? 1 : 2);
  names.sort((a, b) => rank(a) - rank(b) || a.localeCompare(b, "en", { numeric: true }));
  return names.map((name) => [name, { sum: sums.get(name), rules: rules.get(name) }]);
}

function keyRow(name, revoke) {
  const word = el("span", { class: "key-name", text: name || OWN_TOKEN, title: name || OWN_TOKEN });
  const gone = el("span", { class: "badge", text: "revoked" });
  const [calls, tokens, cost] = [el("td", { class: "number-cell" }), el("td", { class: "number-cell" }), el("td", { class: "number-cell" })];
  const spent = el("span");
  const reached = el("span", { class: "badge", data: { state: "paused" }, text: "reached" });
  const resumes = el("span", { class: "muted" });
  const button = actionButton(
    { class: "button small quiet-danger", icon: "close", "aria-label": `Revoke ${name}` },
    "Revoke",
    () => revoke(name),
  );
  const cells = [
    el("td", { class: "name" }, word, " ", gone),
    calls,
    tokens,
    cost,
    el("td", { class: "budget" }, spent, " ", reached, " ", resumes),
    el("td", { class: "action" }, button),
  ];
  return {
    node: el("tr", { data: { call: name } }, ...cells),
    update([, { sum, rules }]) {
      const isGone = rules === undefined && name !== "";
      show(gone, isGone);
      show(button, rules !== undefined);
      setText(calls, count(sum?.requests ?? 0));
      calls.classList.toggle("single", sum?.requests === 1);
      setText(tokens, sum ? compact(tokenSum(sum.tokens)) : "0");
      setAttribute(tokens, "title", sum ? count(tokenSum(sum.tokens)) : null);
      setText(cost, sum ? spendText(sum) : dollars(0));
      setText(spent, budgetText(rules));
      show(reached, rules?.is_reached === true);
      const at = rules?.is_reached ? (rules.resumes_at ?? null) : null;
      setText(resumes, at === null ? "" : `until ${clockTime(at)}`);
    },
  };
}

/** `$0.0510 of $0.05/day`, for the period of the budget itself. */
function budgetText(rules) {
  if (!rules?.budget) return "";
  return typeof rules.spent === "number" ? `${dollars(rules.spent)} of ${rules.budget}` : rules.budget;
}

function queueCells({ model, scope, key, reason, retry_at: retryAt, waited_seconds: waited }) {
  const next = retryAt !== null && retryAt > now() ? `, again in ${countdown(retryAt - now())}` : "";
  return [model ?? scope, key ?? "", `${reason ?? "its turn"}${next}`, duration(waited)];
}

function recentCells(each) {
  const { began_at: at, model, scope, key, status, waited_seconds: waited, seconds, tokens, cost } = each;
  return [
    clockSeconds(at),
    model ?? scope,
    key ?? "",
    status === null ? "left" : String(status),
    duration(waited),
    duration(seconds),
    tokens === null ? NOTHING : compact(tokenSum(tokens)),
    costText(cost),
  ];
}

export function tokenSum({ input, output, cache_read: read, cache_write: write }) {
  return (input ?? 0) + (output ?? 0) + (read ?? 0) + (write ?? 0);
}

/** Return what was billed and what a subscription would have cost by the price list, together. */
export function costText({ billed, imputed }) {
  return billed === null && imputed === null ? NOTHING : dollars((billed ?? 0) + (imputed ?? 0));
}

/** Return what calls have cost. The sum lacks those whose cost is not known. */
function spendText({ cost, unpriced }) {
  const known = costText(cost);
  return unpriced && known !== NOTHING ? `${known} or more` : known;
}

function table(name, caption, columns) {
  const rows = el("tbody");
  const head = el("tr", {}, ...columns.map((text) => el("th", { scope: "col", class: classOf(text) }, headingOf(text))));
  const node = el(
    "table",
    { class: `calls-table ${name}` },
    el("caption", { text: caption }),
    el("thead", {}, head),
    rows,
  );
  return {
    node,
    /** `items` are pairs of a key and the content of its row: texts, unless `make` makes rows of something else. */
    update(items, make = (key) => textRow(key, columns)) {
      show(node, items.length > 0);
      syncChildren(
        rows,
        items,
        ([key]) => key,
        ([key]) => make(key),
      );
    },
  };
}

const NUMBERS = new Set(["Calls", "Tokens", "Cost", "Waited", "Took", "Since"]);

function classOf(column) {
  return NUMBERS.has(column) ? "number-cell" : "";
}

function headingOf(text) {
  return text === ACTIONS ? el("span", { class: "unseen", text }) : text;
}

function textRow(key, columns) {
  const cells = columns.map((column) =>
    el("td", { class: `of-${column.toLowerCase().replace(" ", "-")} ${classOf(column)}`, "data-label": column.toLowerCase() }),
  );
  return {
    node: el("tr", { data: { call: key } }, ...cells),
    update([, texts]) {
      texts.forEach((text, at) => {
        setText(cells[at], text);
        setAttribute(cells[at], "title", text || null);
      });
    },
  };
}
