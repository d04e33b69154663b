// A card for each campaign: how far it is, what holds it, and its handles.

import { actionButton, el, icon, keyed, setAttribute, setIcon, setText, show } from "./dom.js";
import { emptyState } from "./empty.js";
import { send } from "./net.js";
import { segments } from "./segments.js";
import { announce, attempt, confirmed } from "./telling.js";
import { clockTime, count, counted, until } from "./words.js";

const SHOWN = [
  ["done", "done"],
  ["running", "running"],
  ["parked", "parked"],
  ["waiting", "waiting"],
  ["quarantined", "quarantined"],
  ["held", "held"],
  ["cancelled", "cancelled"],
];

export function makeCampaigns(root, { refetch, showUnits }) {
  const list = el("div", { class: "cards" });
  const empty = emptyState(
    "No campaigns yet",
    "Add one from another terminal; it starts at once.",
    ["paceline add plan.toml", "paceline demo"],
  );
  root.querySelector(".body").append(list, empty);
  const aside = document.getElementById("campaigns-aside");

  return {
    update(news) {
      const { campaigns } = news;
      show(empty, campaigns.length === 0);
      setText(aside, campaigns.length ? counted(campaigns.length, "campaign") : "");
      const shown = campaigns.map((each) => ({ ...each, waits: waitsOf(each.name, news.waits) }));
      keyed(list, shown, (each) => each.name, () => card(refetch, showUnits));
    },
  };
}

function card(refetch, showUnits) {
  let last = null;
  const name = el("h3");
  const state = el("span", { class: "badge" });
  const priority = el("span", { class: "fact", data: { figure: "priority" } });
  const sessions = el("span", { class: "fact", data: { figure: "sessions" } });
  const eta = el("span", { class: "fact", data: { figure: "eta" } });
  const bar = segments("Units");
  const counts = el("ul", { class: "counts" });
  const quota = el("p", { class: "quota" }, icon("parked"), el("span"));
  const waits = el("p", { class: "waits" });

  const act = (verb, done) => async () => {
    await attempt(() => send("POST", `/v1/campaigns/${encodeURIComponent(last.name)}/${verb}`), done?.());
    refetch();
  };
  const switchButton = actionButton({ class: "button small", icon: "paused" }, "Pause", () => act(last.state === "paused" ? "resume" : "pause")());
  const retry = actionButton({ class: "button small", icon: "retry" }, "Retry", () => act("retry", () => `${last.name}: its failed units are tried again.`)());
  const cancel = actionButton({ class: "button small quiet-danger", icon: "close" }, "Cancel", async () => {
    const open = last.units.todo + last.units.running + last.units.held + last.units.quarantined;
    const text = `${counted(open, "unit")} that ${open === 1 ? "is" : "are"} not done will never be run, and ${counted(last.units.running, "running session")} will be ended. This is for good.`;
    if (await confirmed(`Cancel ${last.name}?`, text, "Cancel the campaign")) await act("cancel", () => `${last.name} is cancelled.`)();
  });
  const node = el("article", { class: "card" },
    el("div", { class: "card-head" }, name, state, el("div", { class: "buttons" }, retry, switchButton, cancel)),
    bar.node,
    counts,
    el("p", { class: "facts" }, priority, sessions, eta),
    quota,
    waits,
  );

  function update(campaign) {
    if (last && last.state !== campaign.state) announce(`${campaign.name} is ${campaign.state}.`);
    last = campaign;
    const units = { ...campaign.units, waiting: campaign.units.todo - campaign.units.parked };
    const isOver = campaign.finished;
    const shownState = campaign.state === "active" && isOver ? "finished" : campaign.state;
    setText(name, campaign.name);
    setAttribute(node, "data-campaign", campaign.name);
    setText(state, shownState);
    setAttribute(state, "data-state", shownState);
    setText(priority, `priority ${campaign.priority}`);
    setText(sessions, counted(campaign.running, "active session"));
    setText(eta, campaign.eta === null ? (isOver ? "" : "ETA not known yet") : `ETA ${clockTime(campaign.eta)}, ${until(campaign.eta)}`);
    bar.update(units);
    keyed(counts, SHOWN.filter(([key]) => units[key]), ([key]) => key, ([key, word]) => countItem(key, word, () => showUnits(last.name, key)));
    for (const [key] of SHOWN) counts.keyedParts.get(key)?.set(units[key]);
    setText(quota.lastChild, campaign.quota ?? "");
    show(quota, Boolean(campaign.quota));
    const isHeldUp = campaign.state === "active" && units.waiting > 0 && campaign.waits.length > 0;
    setText(waits, isHeldUp ? `waits: ${campaign.waits.join("; ")}` : "");
    show(waits, isHeldUp);
    setText(switchButton.lastChild, campaign.state === "paused" ? "Resume" : "Pause");
    setIcon(switchButton.firstChild, campaign.state === "paused" ? "running" : "paused");
    show(switchButton, campaign.state === "paused" || (campaign.state === "active" && !isOver));
    const failed = campaign.units.quarantined + campaign.units.held;
    setText(retry.lastChild, `Retry ${count(failed)}`);
    show(retry, failed > 0 && campaign.state !== "cancelled");
    show(cancel, campaign.state !== "cancelled" && !(isOver && failed === 0));
    for (const [button, verb] of [[switchButton, campaign.state === "paused" ? "Resume" : "Pause"], [cancel, "Cancel"], [retry, "Retry the failed units of"]]) {
      setAttribute(button, "aria-label", `${verb} ${campaign.name}`);
    }
  }
  return { node, update };
}

/** What holds the lines of a campaign, one for each account it may run on; lines with the same reason are told once. */
function waitsOf(campaign, waits) {
  return [...new Set(waits.filter((each) => each.campaign === campaign).map((each) => each.detail))];
}

function countItem(state, word, open) {
  const number = el("b", { data: { figure: state } });
  const button = el("button", { type: "button", class: `count ${state}`, onclick: open, title: `Show the ${word} units` }, icon(state), number, ` ${word}`);
  return { node: el("li", {}, button), set: (value) => setText(number, count(value)) };
}
