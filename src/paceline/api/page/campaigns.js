// One card per campaign: its progress, why it waits, and its controls.

import { actionButton, el, icon, setAttribute, setIcon, setText, show, syncChildren } from "./dom.js";
import { emptyState } from "./empty_state.js";
import { clockTime, count, plural, STATES, until } from "./format.js";
import { announce, confirmAction, runAction } from "./notices.js";
import { numberField } from "./number_field.js";
import { send } from "./requests.js";
import { makeStateBar } from "./state_bar.js";

const HIGHEST_PRIORITY = 100;

export function makeCampaigns(root, { refetch, showUnits }) {
  const list = el("div", { class: "cards" });
  const empty = emptyState("No campaigns yet", "Add one from a terminal; it starts at once.", [
    "paceline add plan.toml",
  ]);
  root.querySelector(".body").append(list, empty);
  const aside = document.getElementById("campaigns-aside");

  return {
    focus: () => root.focus(),
    update(overview) {
      const { campaigns } = overview;
      show(empty, campaigns.length === 0);
      setText(aside, campaigns.length ? plural(campaigns.length, "campaign") : "");
      const shown = campaigns.map((each) => ({ ...each, waits: waitsOf(each, overview.waits) }));
      syncChildren(
        list,
        shown,
        (each) => each.name,
        (each) => card(each, refetch, showUnits),
      );
    },
  };
}

function card({ name }, refetch, showUnits) {
  let last = null;
  const state = el("span", { class: "badge" });
  const bar = makeStateBar("Units");
  const counts = el("ul", { class: "counts" });
  const priority = el("span", { class: "fact", data: { figure: "priority" } });
  const sessions = el("span", { class: "fact", data: { figure: "sessions" } });
  const eta = el("span", { class: "fact", data: { figure: "eta" } });
  const quota = el("p", { class: "quota" }, icon("parked"), el("span"));
  const waits = el("p", { class: "waits" });
  const small = { class: "button small" };
  const retry = actionButton(
    { ...small, icon: "retry" },
    "Retry",
    () => act("retry", `Failed units of ${name} moved back to todo.`),
  );
  const pause = actionButton({ ...small, icon: "paused" }, "Pause", () =>
    act(last.state === "paused" ? "resume" : "pause"),
  );
  const cancel = actionButton(
    { class: "button small quiet-danger", icon: "close", "aria-label": `Cancel ${name}` },
    "Cancel",
    async () => {
      const isConfirmed = await confirmAction(`Cancel ${name}?`, cancelText(last.units), "Cancel the campaign");
      if (isConfirmed) await act("cancel", `${name} is cancelled.`);
    },
  );
  const fields = {
    priority: numberField({
      label: `Priority of ${name}`,
      min: -HIGHEST_PRIORITY,
      max: HIGHEST_PRIORITY,
      apply: (value) => change({ priority: value }, `${name} has priority ${value}.`),
    }),
    max_sessions: numberField({
      label: `Sessions of ${name} at once`,
      min: 1,
      canBeEmpty: true,
      apply: (value) => change({ max_sessions: value }, `${name} runs ${value ?? "any number of"} sessions at once.`),
    }),
  };
  const form = el(
    "div",
    { class: "campaign-fields", hidden: true },
    el("div", {}, el("span", { text: "Priority" }), fields.priority.node),
    el("div", {}, el("span", { text: "Sessions at once" }), fields.max_sessions.node),
  );
  const edit = actionButton(
    { ...small, icon: "edit", isHarmless: true, "aria-label": `Edit ${name}`, "aria-expanded": "false" },
    "Edit",
    () => showFields(form.hidden),
  );
  const node = el(
    "article",
    { class: "card", data: { campaign: name } },
    el(
      "div",
      { class: "card-head" },
      el("h3", { text: name }),
      state,
      el("div", { class: "buttons" }, retry, pause, edit, cancel),
    ),
    bar.node,
    counts,
    el("p", { class: "facts" }, priority, sessions, eta),
    form,
    quota,
    waits,
  );

  async function act(verb, done) {
    await runAction(() => send("POST", `/v1/campaigns/${encodeURIComponent(name)}/${verb}`), done);
    refetch();
  }

  async function change(values, done) {
    const isChanged = await runAction(() => send("PATCH", `/v1/campaigns/${encodeURIComponent(name)}`, values), done);
    refetch();
    return isChanged;
  }

  function showFields(isShown) {
    show(form, isShown);
    setAttribute(edit, "aria-expanded", String(isShown));
  }

  function update(campaign) {
    if (last && last.state !== campaign.state) announce(`${name} is ${campaign.state}.`);
    last = campaign;
    const units = { ...campaign.units, waiting: campaign.units.todo - campaign.units.parked };
    const shownState = campaign.finished ? "finished" : campaign.state;
    setText(state, shownState);
    setAttribute(state, "data-state", shownState);
    bar.update(units);
    const present = STATES.filter((each) => units[each]).map((each) => [each, units[each]]);
    syncChildren(
      counts,
      present,
      ([each]) => each,
      ([each]) => countItem(each, () => showUnits(name, each)),
    );
    for (const [field, each] of Object.entries(fields)) each.update(campaign[field]);
    setText(priority, `priority ${campaign.priority}`);
    setText(sessions, plural(campaign.running, "running unit"));
    setText(eta, etaText(campaign));
    setText(quota.lastChild, campaign.quota ?? "");
    show(quota, Boolean(campaign.quota));
    const isBlocked = campaign.state === "active" && units.waiting > 0 && campaign.waits.length > 0;
    const paused = campaign.pause_reason ? `paused itself: ${campaign.pause_reason}` : "";
    setText(waits, isBlocked ? `waiting: ${campaign.waits.join("; ")}` : paused);
    show(waits, isBlocked || Boolean(paused));
    updateButtons(campaign);
  }

  function updateButtons({ state: stored, units, finished }) {
    const isCancelled = stored === "cancelled";
    const failed = units.unverified + units.quarantined + units.held + (isCancelled ? units.cancelled : 0);
    const isPaused = stored === "paused";
    setText(retry.lastChild, `Retry ${count(failed)}`);
    setAttribute(retry, "aria-label", `Retry ${plural(failed, "failed unit")} of ${name}`);
    show(edit, !isCancelled);
    if (isCancelled) showFields(false);
    show(retry, failed > 0);
    setText(pause.lastChild, isPaused ? "Resume" : "Pause");
    setIcon(pause.firstChild, isPaused ? "running" : "paused");
    setAttribute(pause, "aria-label", `${isPaused ? "Resume" : "Pause"} ${name}`);
    show(pause, isPaused || (stored === "active" && !finished));
    show(cancel, !isCancelled && !(finished && failed === 0));
  }

  return { node, update };
}

function cancelText({ todo, running, held, unverified, quarantined }) {
  const open = todo + running + held + unverified + quarantined;
  const units = `${plural(open, "unit")} that ${open === 1 ? "is" : "are"} not done will not run`;
  return `${units}, and the work of ${plural(running, "running unit")} will be ended. Retry undoes it.`;
}

function etaText({ eta, finished, state }) {
  if (eta !== null) return `ETA ${clockTime(eta)}, ${until(eta)}`;
  return finished || state === "cancelled" ? "" : "ETA unknown";
}

/** Return why the units of a campaign wait, each reason once. A spent quota has a line of its own. */
function waitsOf({ name, quota }, waits) {
  const own = waits.filter((each) => each.campaign === name && !(quota && each.reason === "window_closed"));
  return [...new Set(own.map((each) => each.detail))];
}

function countItem(state, open) {
  const number = el("b", { data: { figure: state } });
  const props = { type: "button", class: `count ${state}`, onclick: open, title: `Show the ${state} units` };
  const node = el("li", {}, el("button", props, icon(state), number, ` ${state}`));
  return { node, update: ([, value]) => setText(number, count(value)) };
}
