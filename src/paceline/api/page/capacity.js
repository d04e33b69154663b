// A row for each provider, account and model: how full it is, what holds it back, where that belief comes from.

import { actionButton, el, icon, keyed, partsOf, setAttribute, setText, show } from "./dom.js";
import { emptyState } from "./empty_state.js";
import { numberField } from "./number_field.js";
import { send } from "./requests.js";
import { announce, attempt, confirmed } from "./notices.js";
import { byLength, windowRow } from "./quota_windows.js";
import { count, countdown, counted, NOTHING, now } from "./format.js";

const MOST_DOTS = 24;
const POOL = "sessions"; // in the engine strip
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

  return {
    update({ capacity }) {
      const scopes = inTreeOrder(capacity.filter(isWorthARow));
      show(empty, scopes.length === 0);
      show(heading, scopes.length > 0);
      const held = scopes.filter((each) => each.held).length;
      const reduced = scopes.filter((each) => each.auto_reduced).length;
      setText(aside, [held ? `${held} held` : "", reduced ? `${reduced} reduced` : ""].filter(Boolean).join(", "));
      keyed(
        list,
        scopes,
        (each) => each.scope,
        (each) => scopeRow(each, refetch),
      );
    },
    tick() {
      for (const part of partsOf(list)) part.tick();
    },
  };
}

/** Every scope of a provider has a row; of the others, those that hold something back. */
function isWorthARow(each) {
  if (each.scope === POOL) return false;
  return (
    PROVIDERS.includes(each.kind) ||
    each.limit !== null ||
    each.held ||
    each.paused_until !== null ||
    each.windows.length > 0
  );
}

/** A scope directly under the one it belongs to; what is no provider's comes last. */
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
  const pause = el("p", { class: "line paused" }, icon("paused"), el("span"));
  const restoring = { class: "button small", icon: "retry", "aria-label": `Restore ${scope}` };
  const restore = actionButton(restoring, "Restore", () => back("is back at its configured limit"));
  const lift = actionButton(restoring, "Restore", () => back("is in use again"));
  const reduced = el("div", { class: "banner reduced" }, icon("warning"), el("span"), restore);
  const held = el("div", { class: "banner held" }, icon("held"), el("span"), lift);
  const windows = el("ul", { class: "windows" });
  const node = el(
    "li",
    { class: "scope", data: { scope, depth: String(path.length) } },
    el(
      "div",
      { class: "scope-row" },
      el("div", { class: "scope-name" }, el("span", { class: "last", text: path.at(-1), title: scope })),
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
    reduced,
    pause,
    windows,
  );

  const address = (what) => `/concurrency/${what}/${encodeURIComponent(scope)}`;

  async function setLimit(value) {
    if (value !== null) {
      return changed(() => send("PUT", address("limits"), { limit: value }), `The limit of ${scope} is ${value} now.`);
    }
    const text = "All that waits there may enter, as far as other limits allow. What was learnt of it is forgotten.";
    const isSure = await confirmed(`Remove the limit of ${scope}?`, text, "Remove the limit");
    return isSure && changed(() => send("DELETE", address("limits")), `${scope} has no limit of its own now.`);
  }

  function setCooldown(value) {
    const done = `The cooldown of ${scope} is ${value} ms now.`;
    return changed(() => send("PUT", address("cooldown"), { cooldownMs: value }), done);
  }

  function back(words) {
    return changed(() => send("POST", address("restore")), `${scope} ${words}.`);
  }

  async function changed(action, done) {
    const isTaken = await attempt(action, done);
    refetch();
    return isTaken;
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
      status.cooling ? `${counted(status.cooling, "released slot")} still cooling down` : null,
    );
    limit.update(status.configured);
    setText(effective, status.limit === status.configured ? "" : `effective ${count(status.limit)}`);
    setText(queue, count(status.queued));
    node.classList.toggle("idle", used === 0 && !status.queued);
    cooldown.update(Math.round(status.cooldown * 1000));
    const learnt = learntWords(status);
    setText(reduced.children[1], learnt);
    show(reduced, learnt !== "" && !status.held);
    setText(held.children[1], `held: ${status.held ?? ""}`);
    show(held, Boolean(status.held));
    keyed(
      windows,
      byLength(status.windows),
      (each) => each.name,
      () => windowRow(),
    );
    tick();
  }

  function tick() {
    if (!last) return;
    const until = last.paused_until;
    const isPaused = until !== null && until > now();
    show(pause, isPaused);
    if (isPaused) setText(pause.lastChild, `paused after a refusal, goes on in ${countdown(until - now())}`);
    for (const part of partsOf(windows)) part.tick();
  }

  return { node, update, tick };
}

/** What was learnt and can be forgotten again. */
function learntWords({ auto_reduced_from: from, adaptive, platform }) {
  if (adaptive !== null) return `auto-reduced from ${count(from)} to ${count(adaptive)} after a 429`;
  return platform === null ? "" : `the provider’s own limit is ${count(platform)}`;
}

/** One dot for each place: taken, cooling, free; too many of them become a bar. */
function drawDots(node, { limit, in_flight: live, cooling }) {
  const places = Math.max(limit ?? 0, live + cooling);
  const key = `${places} ${live} ${cooling} ${limit}`;
  if (node.dataset.drawn === key) return;
  node.dataset.drawn = key;
  node.classList.toggle("meter", places > MOST_DOTS);
  if (places > MOST_DOTS) {
    const bar = el("i", { class: "taken" });
    bar.style.width = `${(100 * live) / places}%`;
    node.replaceChildren(bar);
    return;
  }
  const kind = (at) =>
    at < live ? (limit !== null && at >= limit ? "over" : "taken") : at < live + cooling ? "cooling" : "free";
  node.replaceChildren(...Array.from({ length: places }, (_, at) => el("i", { class: kind(at) })));
}
