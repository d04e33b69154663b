// One row per provider, account and model: its usage, what limits it, and the source of that belief.

import { actionButton, el, icon, partsOf, setAttribute, setText, show, syncChildren } from "./dom.js";
import { emptyState } from "./empty_state.js";
import { clockTime, count, countdown, NOTHING, now, plural } from "./format.js";
import { announce, confirmAction, runAction } from "./notices.js";
import { numberField } from "./number_field.js";
import { byLength, windowRow } from "./quota_windows.js";
import { send } from "./requests.js";

const MAX_DOTS = 12; // one line; more are a bar
const MAX_IDLE_MODELS = 5; // of one account; more are one row, because any client of the gateway can name a model
const TIGHT = 0.9; // of a rate: from here on it is about to make calls wait
const POOL = "sessions"; // shown in the engine strip
const TITLES = { runs: "runs: turns of sessions and API calls at once" };
const PROVIDERS = ["provider", "account", "model"];

export function makeCapacity(root, { refetch }) {
  const list = el("ul", { class: "scopes" });
  const heading = el(
    "div",
    { class: "scope-head", "aria-hidden": "true" },
    ...["Scope", "In flight", "Limit", "Queue", "Cooldown"].map((text) => el("span", { text })),
  );
  const empty = emptyState(
    "No capacity in use yet",
    "Accounts and limits appear here once they are configured or a unit has run on them.",
    ["paceline doctor", "paceline limit anthropic/max-1 4"],
  );
  root.querySelector(".body").append(heading, list, empty);
  const aside = document.getElementById("capacity-aside");
  const unfolded = new Set(); // accounts whose idle models are all shown
  let last = null;

  function toggle(account) {
    if (!unfolded.delete(account)) unfolded.add(account);
    update(last);
  }

  function update(overview) {
    last = overview;
    const { capacity, gateway } = overview;
    const failures = new Map((gateway?.failures ?? []).map((each) => [each.scope, each]));
    const scopes = inTreeOrder(capacity.filter(hasRow)).map((each) => ({ ...each, failure: failures.get(each.scope) }));
    show(empty, scopes.length === 0);
    show(heading, scopes.length > 0);
    const held = scopes.filter((each) => each.held).length;
    const reduced = scopes.filter((each) => each.auto_reduced).length;
    setText(aside, [held ? `${held} held` : "", reduced ? `${reduced} reduced` : ""].filter(Boolean).join(", "));
    syncChildren(
      list,
      folded(scopes, unfolded),
      (each) => each.key ?? each.scope,
      (each) => (each.key ? foldRow(each, toggle) : scopeRow(each, refetch)),
    );
  }

  return {
    update,
    tick() {
      for (const part of partsOf(list)) part.tick?.();
    },
  };
}

/** Replace the idle models of an account by one row that shows or hides them, where they are many. */
function folded(scopes, unfolded) {
  const idle = new Map();
  for (const each of scopes.filter(isIdleModel)) {
    const account = parentOf(each.scope);
    idle.set(account, (idle.get(account) ?? 0) + 1);
  }
  const rows = [];
  for (const each of scopes) {
    const account = parentOf(each.scope);
    const models = isIdleModel(each) ? idle.get(account) : 0;
    if (models <= MAX_IDLE_MODELS) {
      rows.push(each);
      continue;
    }
    const isOpen = unfolded.has(account);
    const key = `idle models of ${account}`;
    if (rows.findLast((row) => row.key)?.key !== key) rows.push({ key, account, models, isOpen });
    if (isOpen) rows.push(each);
  }
  return rows;
}

function parentOf(scope) {
  return scope.slice(0, scope.lastIndexOf("/"));
}

/** Return whether nothing uses the model, and there is nothing to report of it. */
function isIdleModel(each) {
  const isUnused = each.kind === "model" && each.in_flight + each.cooling + each.queued === 0;
  const isPlain = each.configured === null || each.configured_source === "pattern";
  const isCalm = !each.held && each.paused_until === null && !each.auto_reduced && each.platform === null && !each.pace;
  return isUnused && isPlain && isCalm && each.windows.length === 0;
}

function foldRow({ account }, toggle) {
  const button = el("button", { type: "button", class: "link fold", onclick: () => toggle(account) });
  const node = el("li", { class: "scope", data: { fold: account, depth: "3" } }, button);
  return {
    node,
    update({ models, isOpen }) {
      setText(button, `${isOpen ? "hide" : "show"} ${plural(models, "idle model")}`);
      setAttribute(button, "aria-expanded", isOpen ? "true" : "false");
      setAttribute(button, "aria-label", `${isOpen ? "Hide" : "Show"} ${plural(models, "idle model")} of ${account}`);
    },
  };
}

/** Every scope of a provider has a row. Other scopes have one only if they limit something. */
function hasRow(each) {
  if (each.scope === POOL) return false;
  return (
    PROVIDERS.includes(each.kind) ||
    (each.kind === "key" && each.in_flight + each.queued > 0) ||
    each.limit !== null ||
    each.held ||
    each.paused_until !== null ||
    each.windows.length > 0
  );
}

/** Sort each scope directly below its parent; scopes without a provider come last. */
function inTreeOrder(scopes) {
  const isProvider = (each) => Number(PROVIDERS.includes(each.kind));
  const key = (each) => each.scope.split("/");
  return [...scopes].sort((a, b) => {
    const kinds = isProvider(b) - isProvider(a);
    if (kinds) return kinds;
    const [one, other] = [key(a), key(b)];
    for (let at = 0; at < Math.min(one.length, other.length); at += 1) {
      const order = one[at].localeCompare(other[at], "en", { numeric: true });
      if (order) return order;
    }
    return one.length - other.length;
  });
}

function scopeRow({ scope, kind }, refetch) {
  const isProvider = PROVIDERS.includes(kind);
  const path = isProvider ? scope.split("/") : [scope];
  let last = null;

  const limit = numberField({ label: `Limit of ${scope}`, min: 1, canBeEmpty: true, apply: setLimit });
  const cooldown = numberField({
    label: `Cooldown of ${scope} in milliseconds`,
    min: 0,
    suffix: "ms",
    apply: setCooldown,
  });
  const dots = el("span", { class: "dots", "aria-hidden": "true" });
  const flight = el("b", { data: { figure: "in_flight" } });
  const effective = el("span", { class: "effective" });
  const queue = el("span", { class: "queue", data: { figure: "queued" } });
  const resume = actionButton(
    { class: "button small", icon: "retry", "aria-label": `Restore ${scope}` },
    "Restore",
    () => restoreScope("is no longer paused or paced"),
  );
  const pause = el("div", { class: "banner paused" }, icon("paused"), el("span"), resume);
  const failing = el("div", { class: "banner failing" }, icon("warning"), el("span"));
  const rates = el("p", { class: "line rates" });
  const restoreProps = { class: "button small", icon: "retry", "aria-label": `Restore ${scope}` };
  const restore = actionButton(restoreProps, "Restore", () => restoreScope("has its configured limit again"));
  const lift = actionButton(restoreProps, "Restore", () => restoreScope("is no longer held"));
  const reduced = el("div", { class: "banner reduced" }, icon("warning"), el("span"), restore);
  const held = el("div", { class: "banner held" }, icon("held"), el("span"), lift);
  const windows = el("ul", { class: "windows" });
  const node = el(
    "li",
    { class: "scope", data: { scope, depth: String(path.length) } },
    el(
      "div",
      { class: "scope-row" },
      el("div", { class: "scope-name" }, el("span", { class: "last", text: path.at(-1), title: TITLES[scope] ?? scope })),
      el("div", { class: "cell flight", "data-label": "In flight" }, flight, dots),
      el("div", { class: "cell", "data-label": "Limit" }, limit.node, effective),
      el("div", { class: "cell", "data-label": "Queue" }, queue),
      el(
        "div",
        { class: "cell", "data-label": "Cooldown" },
        isProvider ? cooldown.node : el("span", { class: "muted", text: NOTHING }),
      ),
    ),
    held,
    failing,
    reduced,
    pause,
    rates,
    windows,
  );

  const address = (what) => `/concurrency/${what}/${encodeURIComponent(scope)}`;

  async function setLimit(value) {
    if (value !== null) {
      return change(() => send("PUT", address("limits"), { limit: value }), `Limit of ${scope} set to ${value}.`);
    }
    const text =
      "Waiting tickets may enter as far as other limits allow. What was learnt about this scope is discarded.";
    const isConfirmed = await confirmAction(`Remove the limit of ${scope}?`, text, "Remove the limit");
    return isConfirmed && change(() => send("DELETE", address("limits")), `Limit of ${scope} removed.`);
  }

  function setCooldown(value) {
    const done = `Cooldown of ${scope} set to ${value} ms.`;
    return change(() => send("PUT", address("cooldown"), { cooldownMs: value }), done);
  }

  function restoreScope(result) {
    return change(() => send("POST", address("restore")), `${scope} ${result}.`);
  }

  async function change(action, done) {
    const isAccepted = await runAction(action, done);
    refetch();
    return isAccepted;
  }

  function update(status) {
    if (last && !last.held && status.held) announce(`${scope} is held: ${status.held}`);
    if (last && !last.auto_reduced && status.auto_reduced) announce(`${scope}: ${status.notice}`);
    last = status;
    const used = status.in_flight + status.cooling;
    setText(flight, count(status.in_flight) + (status.limit === null ? "" : `/${count(status.limit)}`));
    drawDots(dots, status);
    setAttribute(
      dots.parentNode,
      "title",
      status.cooling ? `${plural(status.cooling, "released slot")} in cooldown` : null,
    );
    limit.update(status.configured);
    setText(effective, status.limit === status.configured ? "" : `effective ${count(status.limit)}`);
    setText(queue, count(status.queued));
    node.classList.toggle("idle", used === 0 && !status.queued);
    cooldown.update(Math.round(status.cooldown * 1000));
    const learnt = learntText(status);
    setText(reduced.children[1], learnt);
    show(reduced, learnt !== "" && !status.held);
    setText(held.children[1], `held: ${status.held ?? ""}`);
    show(held, Boolean(status.held));
    show(failing, Boolean(status.failure));
    syncChildren(
      windows,
      byLength(status.windows),
      (each) => each.name,
      () => windowRow(),
    );
    tick();
  }

  function tick() {
    if (!last) return;
    if (last.failure) setText(failing.children[1], failureText(last.failure));
    const until = last.paused_until;
    const isPaused = until !== null && until > now();
    const pace = last.pace;
    show(pause, (isPaused || Boolean(pace)) && !last.held);
    show(resume, learntText(last) === ""); // the banner of a learnt limit has the same button
    if (isPaused) {
      const cause = last.paused_reason ? ` (${last.paused_reason})` : "";
      setText(pause.children[1], `paused after a refusal${cause}, continues in ${countdown(until - now())}`);
    } else if (pace) {
      setText(pause.children[1], paceText(pace));
    }
    const wait = last.paced_until !== null && last.paced_until > now();
    const parts = last.rates.map(rateText);
    if (wait) parts.push(`next in ${countdown(last.paced_until - now())}`);
    setText(rates, parts.join(", "));
    rates.classList.toggle("tight", wait || last.rates.some(({ used, limit }) => used >= TIGHT * limit));
    show(rates, parts.length > 0);
    for (const part of partsOf(windows)) part.tick();
  }

  return { node, update, tick };
}

/** Describe an account of a pool whose calls fail: since when, why, and when it is tried again. */
function failureText({ kind, detail, since, calls, pools, retry_at: retryAt }) {
  const what = kind === "unreachable" ? "cannot be reached" : "refuses calls";
  const text = `${what} since ${clockTime(since)}: ${detail}, ${plural(calls, "call")}`;
  const where = `${pools.length === 1 ? "pool" : "pools"} ${pools.join(", ")}`;
  if (retryAt === null) return `${text}; the ${where} may use other accounts for them`;
  const isLater = retryAt > now();
  return isLater ? `${text}; tried last in the ${where} for ${countdown(retryAt - now())}` : `${text}; the next call may try it`;
}

/** Describe a rate: what is used of it, in which time, and where it comes from. */
function rateText({ kind, source, used, limit, seconds, reason }) {
  const span = seconds === null ? "" : Math.round(seconds) === 60 ? "/min" : ` in ${count(Math.round(seconds))} s`;
  return `${count(Math.round(used))} of ${count(Math.round(limit))} ${kind}${span}${source === "set" ? "" : ` (${reason})`}`;
}

function paceText({ interval, reason }) {
  const apart = interval < 1 ? interval.toPrecision(1) : interval.toFixed(1);
  return `paced, ${apart} s apart: ${reason}`;
}

/** Describe the learnt limit, which Restore discards. */
function learntText({ auto_reduced_from: from, adaptive, platform, learnt }) {
  if (adaptive !== null)
    return `auto-reduced to ${count(adaptive)} from ${count(from)} after a 429${nextTryText(learnt)}`;
  return platform === null ? "" : `the provider’s own limit is ${count(platform)}`;
}

/** Describe which level was refused last, and when the next one is tried. */
function nextTryText(learnt) {
  if (!learnt || learnt.refused_at === null) return "";
  const refused = `: refused at ${count(learnt.refused_level)} at ${clockTime(learnt.refused_at)}`;
  if (learnt.next_try_at === null) return `${refused}; ${learnt.reason}`;
  const isLater = learnt.next_try_at > now();
  const when = isLater
    ? `at ${clockTime(learnt.next_try_at)} if nothing is refused until then`
    : `next because ${learnt.reason}`;
  return `${refused}; ${count(learnt.next_level)} is tried ${when}`;
}

/** Draw one dot per place (taken, in cooldown, free), or a bar if there are too many. */
function drawDots(node, { limit, in_flight: live, cooling }) {
  const places = Math.max(limit ?? 0, live + cooling);
  const key = `${places} ${live} ${cooling} ${limit}`;
  if (node.dataset.drawn === key) return;
  node.dataset.drawn = key;
  node.classList.toggle("meter", places > MAX_DOTS);
  if (places > MAX_DOTS) {
    const bar = el("i", { class: "taken" });
    bar.style.width = `${(100 * live) / places}%`;
    node.replaceChildren(bar);
    return;
  }
  const kind = (at) =>
    at < live ? (limit !== null && at >= limit ? "over" : "taken") : at < live + cooling ? "cooling" : "free";
  node.replaceChildren(...Array.from({ length: places }, (_, at) => el("i", { class: kind(at) })));
}
