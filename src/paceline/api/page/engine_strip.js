// The engine strip: the figures of the whole fleet, and its two controls, pool and pause.

import { costText, isUsed, tokenSum } from "./calls.js";
import { el, icon, onAction, setAttribute, setIcon, setText, show } from "./dom.js";
import { clockTime, compact, count, countdown, NOTHING, now, plural, until } from "./format.js";
import { announce, runAction } from "./notices.js";
import { numberField } from "./number_field.js";
import { send } from "./requests.js";
import { makeStateBar } from "./state_bar.js";

const ENGINE_STATES = { leading: "running", standby: "standing by" };

export function makeStrip(root, refetch) {
  const pool = numberField({
    label: "Pool: concurrent sessions",
    min: 1,
    stepper: true,
    apply: (sessions) =>
      runAction(() => send("PUT", "/v1/pool", { sessions }), `Pool set to ${sessions}.`).finally(refetch),
  });
  const poolNote = el("p", { class: "note", data: { figure: "pool.use" } });
  const tiles = {
    running: tile("running", "running", "Running"),
    waiting: tile("waiting", "waiting", "Waiting"),
    parked: tile("parked", "parked", "Parked"),
    done: tile("done", "done", "Done"),
    failed: tile("failed", "quarantined", "Stopped"),
    resume: tile("resume", "clock", "Resumes in"),
    pace: tile("pace", "retry", "Throughput"),
    eta: tile("eta", "clock", "ETA"),
  };
  const calls = {
    flight: tile("calls", "running", "Calls in flight"),
    waiting: tile("calls-waiting", "waiting", "Calls waiting"),
    rate: tile("calls-rate", "retry", "Calls a minute"),
    refused: tile("calls-refused", "warning", "Refusals"),
    tokens: tile("tokens", "edit", "Tokens today"),
    cost: tile("cost", "clock", "Cost today"),
  };
  const all = makeStateBar("All units");
  const ofUnits = el(
    "div",
    { class: "tiles of-units" },
    el("div", { class: "tile pool" }, el("h3", { text: "Pool" }), pool.node, poolNote),
    ...Object.values(tiles).map((each) => each.node),
  );
  const ofCalls = el("div", { class: "tiles of-calls", hidden: true }, ...Object.values(calls).map((each) => each.node));
  const trouble = el("p", { class: "banner failing trouble", role: "alert", hidden: true }, icon("warning"), el("span"));
  root.append(trouble, ofUnits, all.node, ofCalls);
  const state = document.getElementById("engine-state");
  const engineSwitch = document.getElementById("engine-switch");
  let last = null;

  onAction(engineSwitch, async () => {
    await runAction(() => send("POST", last.engine.state === "paused" ? "/v1/resume" : "/v1/pause"));
    refetch();
  });

  /** Show the calls of the gateway once there are any. Without a campaign, they take the place of the figures of units. */
  function updateCalls(gateway, campaigns) {
    const isInUse = isUsed(gateway);
    show(ofCalls, isInUse);
    show(ofUnits, campaigns.length > 0 || !isInUse);
    show(all.node, campaigns.length > 0);
    if (!isInUse) return;
    const tokens = gateway.tokens_today;
    calls.flight.set(count(gateway.in_flight), "now");
    calls.waiting.set(count(gateway.waiting), gateway.waiting ? "in the queue" : "nothing waits");
    calls.rate.set(count(gateway.per_minute), `${count(gateway.requests_today)} today`);
    calls.refused.set(count(gateway.refused_per_minute), "last minute");
    calls.tokens.set(compact(tokenSum(tokens)), `${compact(tokens.input ?? 0)} in, ${compact(tokens.output ?? 0)} out`);
    const unpriced = gateway.unpriced_today;
    calls.cost.set(costText(gateway.cost_today), unpriced ? `and ${plural(unpriced, "unpriced call")}` : "since 0:00 UTC");
  }

  function update({ status, gateway, campaigns }) {
    const { engine, pool: size, units } = status;
    if (last && last.engine.state !== engine.state) announce(`The engine is ${engine.state}.`);
    last = status;
    setText(state.lastElementChild, engine.trouble ? "blocked" : (ENGINE_STATES[engine.state] ?? engine.state));
    setAttribute(state, "data-state", engine.trouble ? "blocked" : engine.state);
    setText(trouble.lastElementChild, engine.trouble ? `nothing starts: ${engine.trouble}` : "");
    show(trouble, Boolean(engine.trouble));
    const leader = engine.leader ? `; ${engine.leader} leads` : "";
    setAttribute(
      state,
      "title",
      engine.since ? `since ${clockTime(engine.since)}, version ${engine.version}${leader}` : null,
    );
    show(engineSwitch, engine.state !== "standby" && campaigns.length > 0);
    const isPaused = engine.state === "paused";
    setText(engineSwitch.lastElementChild.firstChild, isPaused ? "Resume" : "Pause");
    setIcon(engineSwitch.firstElementChild, isPaused ? "running" : "paused");
    pool.update(size.sessions);
    setText(
      poolNote,
      size.sessions === null
        ? `${count(size.running)} running, no limit`
        : `${count(size.running)} of ${count(size.sessions)} running`,
    );
    tiles.running.set(count(size.running));
    tiles.waiting.set(count(size.waiting));
    tiles.parked.set(count(size.parked));
    const wanted = Object.values(units).reduce((sum, each) => sum + each, 0) - units.cancelled;
    tiles.done.set(count(units.done), `of ${count(wanted)}`);
    const stopped = units.quarantined + units.unverified + units.held;
    tiles.failed.set(count(stopped), stoppedNote(units));
    updateCalls(gateway, campaigns);
    all.update({ ...units, parked: size.parked, waiting: size.waiting, cancelled: 0 });
    tick();
  }

  function tick() {
    if (!last) return;
    const at = last.next_resume_at;
    tiles.resume.set(
      at === null ? NOTHING : at <= now() ? "due" : countdown(at - now()),
      at === null ? "nothing parked" : `at ${clockTime(at)}`,
    );
    tiles.pace.set(count(Math.round(last.pace)), "units/hour");
    tiles.eta.set(...etaTexts(last.eta));
  }

  return { update, tick };
}

/** `03:37` and `Thu, in 4 h 06 min`: the day has no room in the large figure. */
function etaTexts(eta) {
  if (eta === null) return [NOTHING, "unknown"];
  const words = clockTime(eta).split(" ");
  const time = words.pop();
  return [time, [words.join(" ").replace(/,$/, ""), until(eta)].filter(Boolean).join(", ")];
}

/** `4 failed, 1 held`: what is among the stopped units. */
function stoppedNote({ quarantined, unverified, held }) {
  const parts = [
    [quarantined, "failed"],
    [unverified, "unverified"],
    [held, "held"],
  ];
  return parts.flatMap(([units, word]) => (units ? [`${count(units)} ${word}`] : [])).join(", ") || "nothing";
}

function tile(figure, symbol, name) {
  const value = el("p", { class: "value", data: { figure } });
  const note = el("p", { class: "note" });
  return {
    node: el("div", { class: `tile ${figure}` }, el("h3", {}, icon(symbol), el("span", { text: name })), value, note),
    set(text, detail = "") {
      setText(value, text);
      setText(note, detail);
    },
  };
}
