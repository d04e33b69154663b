// What needs a person: held accounts, stopped units by reason, paused campaigns. Each has the one button that settles it.

import { actionButton, el, icon, setAttribute, setText, show, syncChildren } from "./dom.js";
import { clockTime, count, now } from "./format.js";
import { announce, runAction } from "./notices.js";
import { send } from "./requests.js";

const SHOWN = 5; // more are behind a button: the fleet below matters too
const ICONS = {
  store_outage: "held",
  held_scope: "held",
  missing_key: "warning",
  idle_pool: "held",
  failing_account: "warning",
  reached_budget: "warning",
  stopped_units: "quarantined",
  paused_campaign: "paused",
  host_problem: "warning",
  expiring_login: "warning",
  learnt_limit: "warning",
};

export function makeNeeds(root, { refetch, showUnits }) {
  const title = el("h2", { id: "needs-title" });
  const list = el("ul", { class: "needs-list" });
  const more = el("button", { type: "button", class: "link", onclick: toggle, "aria-expanded": "false" });
  root.append(title, list, more);
  let isOpen = false;
  let found = [];

  function toggle() {
    isOpen = !isOpen;
    draw();
  }

  function draw() {
    show(root, found.length > 0);
    setText(title, `Needs you: ${count(found.length)}`);
    syncChildren(
      list,
      isOpen ? found : found.slice(0, SHOWN),
      (need) => `${need.kind} ${need.campaign ?? ""} ${need.state ?? ""} ${need.target}`,
      (need) => needRow(need, { refetch, showUnits }),
    );
    show(more, found.length > SHOWN);
    setText(more, isOpen ? "show fewer" : `show ${count(found.length - SHOWN)} more`);
    setAttribute(more, "aria-expanded", isOpen ? "true" : "false");
  }

  return {
    update({ needs }) {
      if (needs.length > found.length && found.length === 0) {
        announce(needs.length === 1 ? "1 thing needs you." : `${count(needs.length)} things need you.`);
      }
      found = needs;
      draw();
    },
  };
}

function needRow(first, { refetch, showUnits }) {
  let need = first;
  const title = el("b");
  const detail = el("span", { class: "detail" });
  const node = el(
    "li",
    { class: "need", data: { need: first.kind, target: first.target } },
    icon(ICONS[first.kind]),
    el("span", { class: "words" }, title, " ", detail),
  );
  if (first.kind === "stopped_units") {
    node.append(
      actionButton({ class: "button small", icon: "waiting", isHarmless: true }, "Show", () =>
        showUnits(need.campaign, need.state),
      ),
    );
  }
  const action = ACTIONS[first.action];
  if (action) {
    const button = actionButton({ class: "button small", icon: action.icon }, action.label, async () => {
      await runAction(() => action.run(need), action.done(need));
      refetch();
    });
    setAttribute(button, "aria-label", `${action.label}: ${first.title}`);
    node.append(button);
  }
  return {
    node,
    update(latest) {
      need = latest;
      setText(title, need.title);
      const words = wordsOf(need);
      setText(detail, words);
      setAttribute(detail, "title", words);
    },
  };
}

function wordsOf({ kind, detail, since, until, tried_at: triedAt }) {
  const parts = [detail];
  if (since !== null) parts.push(kind === "expiring_login" ? `(it ended ${clockTime(since)})` : `since ${clockTime(since)}`);
  if (until !== null) parts.push(`until ${clockTime(until)}`);
  if (triedAt !== null) parts.push(triedAt > now() ? `, tried again at ${clockTime(triedAt)}` : ", tried next");
  return parts.join(" ").replaceAll(" ,", ",");
}

const ACTIONS = {
  restore: {
    label: "Restore",
    icon: "retry",
    run: ({ target }) => send("POST", `/concurrency/restore/${encodeURIComponent(target)}`),
    done: ({ target }) => `${target} is restored.`,
  },
  retry: {
    label: "Retry these",
    icon: "retry",
    run: ({ campaign, target }) =>
      send("POST", `/v1/campaigns/${encodeURIComponent(campaign)}/retry`, { like: target }),
    done: ({ campaign }) => `Units of ${campaign} that stopped for this reason are tried again.`,
  },
  resume: {
    label: "Resume",
    icon: "running",
    run: ({ target }) => send("POST", `/v1/campaigns/${encodeURIComponent(target)}/resume`),
    done: ({ target }) => `${target} continues.`,
  },
};
