// API calls through the gateway: what runs and waits, what each key has cost, and the keys themselves.

import { actionButton, el, setText, show, syncChildren } from "./dom.js";
import { clockSeconds, count, countdown, dollars, duration, NOTHING, now } from "./format.js";
import { confirmAction, runAction } from "./notices.js";
import { get, send } from "./requests.js";
import { throttled } from "./throttle.js";

const REFETCH_MS = 2000;
const ACTIONS = "Actions"; // a heading that only screen readers need
const SHOWN = 8; // of those that wait or ended; the API has all of them

export function makeCalls(root) {
  const body = root.querySelector(".body");
  const aside = document.getElementById("calls-aside");
  const spend = table("Cost of the last 30 days by key", ["Key", "Calls", "Tokens", "Cost", ACTIONS]);
  const queue = table("Calls that wait", ["Model", "Key", "Waits for", "Since"]);
  const recent = table("Last calls", ["Time", "Model", "Key", "Status", "Waited", "Took", "Tokens", "Cost"]);
  body.append(spend.node, queue.node, recent.node);
  let isUsed = false;
  const refetch = throttled(fetchCalls, REFETCH_MS);

  async function fetchCalls() {
    if (!isUsed) return;
    let answers;
    try {
      answers = await Promise.all([get("/v1/gateway/requests"), get("/v1/gateway/spend?by=key"), get("/v1/keys")]);
    } catch {
      return; // app.js shows that the server is unreachable
    }
    const [requests, spent, { keys }] = answers;
    drawSpend(spent, keys);
    queue.update(requests.waiting.slice(0, SHOWN).map((each) => [each.id, queueCells(each)]));
    recent.update(requests.recent.slice(0, SHOWN).map((each) => [each.id, recentCells(each)]));
  }

  function drawSpend({ rows }, keys) {
    const known = new Map(keys.map((each) => [each.name, each]));
    const names = new Set([...known.keys(), ...rows.map((each) => each.key ?? "")]);
    const byName = new Map(rows.map((each) => [each.key ?? "", each]));
    spend.update([...names].sort().map((name) => [name, spendCells(name, byName.get(name), known.get(name), refetch)]));
  }

  return {
    update({ gateway }) {
      isUsed = gateway !== null && (gateway.requests_today > 0 || gateway.in_flight + gateway.waiting > 0);
      show(root, isUsed);
      if (!isUsed) return;
      setText(aside, `${count(gateway.in_flight)} in flight, ${count(gateway.waiting)} waiting`);
      refetch();
    },
  };
}

function spendCells(name, row, key, refetch) {
  const budget = key?.budget ? ` of ${key.budget}` : "";
  const revoke = key
    ? actionButton(
        { class: "button small quiet-danger", icon: "close", "aria-label": `Revoke ${name}` },
        "Revoke",
        async () => {
          const text =
            "Calls that run finish. The next call with this key is refused. A revoked key never works again.";
          if (!(await confirmAction(`Revoke the key ${name}?`, text, "Revoke the key"))) return;
          await runAction(() => send("DELETE", `/v1/keys/${encodeURIComponent(name)}`), `${name} is revoked.`);
          refetch();
        },
      )
    : "";
  return [
    name || "Paceline’s own token",
    count(row?.requests ?? 0),
    row ? count(tokenSum(row.tokens)) : "0",
    (row ? costText(row.cost) : dollars(0)) + budget,
    revoke,
  ];
}

function queueCells({ model, scope, key, reason, retry_at: retryAt, waited_seconds: waited }) {
  const next = retryAt !== null && retryAt > now() ? `, next check in ${countdown(retryAt - now())}` : "";
  return [model ?? scope, key ?? "", `${reason ?? "its turn"}${next}`, duration(waited)];
}

function recentCells(each) {
  const { began_at: at, model, scope, key, status, waited_seconds: waited, seconds, tokens, cost } = each;
  return [
    at ? clockSeconds(at) : "",
    model ?? scope,
    key ?? "",
    status === null ? "left" : String(status),
    duration(waited),
    duration(seconds),
    tokens === null ? NOTHING : count(tokenSum(tokens)),
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

function table(caption, columns) {
  const rows = el("tbody");
  const head = el("tr", {}, ...columns.map((text) => el("th", { scope: "col" }, headingOf(text))));
  const node = el("table", { class: "calls-table" }, el("caption", { text: caption }), el("thead", {}, head), rows);
  return {
    node,
    /** `items` are pairs of a key and the cells of its row, as texts or elements. */
    update(items) {
      show(node, items.length > 0);
      syncChildren(
        rows,
        items,
        ([key]) => key,
        ([key, cells]) => tableRow(key, cells, columns),
      );
    },
  };
}

function headingOf(text) {
  return text === ACTIONS ? el("span", { class: "unseen", text }) : text;
}

function tableRow(key, first, columns) {
  const cells = first.map((content, at) => el("td", { "data-label": columns[at] }, content));
  const node = el("tr", { data: { call: key } }, ...cells);
  return {
    node,
    update([, contents]) {
      contents.forEach((content, at) => {
        if (typeof content === "string") setText(cells[at], content);
      });
    },
  };
}
