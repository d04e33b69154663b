// The engine strip: the figures of the whole fleet, and its two controls, pool and pause.

import { costText, tokenSum } from "./calls.js";
import { el, icon, onAction, setAttribute, setIcon, setText, show } from "./dom.js";
import { clockTime, count, countdown, NOTHING, now, plural, until } from "./format.js";
import { announce, runAction } from "./notices.js";
import { numberField } from "./number_field.js";
import { send } from "./requests.js";
import { makeStateBar } from "./state_bar.js";

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
    resume: tile("resume", "clock", "Next resume"),
    pace: tile("pace", "retry", "Throughput"),
    eta: tile("eta", "clock", "ETA"),
  };
  const calls = tile("calls", "running", "API calls");
  const cost = tile("cost", "clock", "Cost of calls today");
  const all = makeStateBar("All units");
  root.append(
    el(
      "div",
      { class: "tiles" },
      el("div", { class: "tile pool" }, el("h3", { text: "Pool" }), pool.node, poolNote),
      ...Object.values(tiles).map((each) => each.node),
      calls.node,
      cost.node,
    ),
    all.node,
  );
  const state = document.getElementById("engine-state");
  const engineSwitch = document.getElementById("engine-switch");
  let last = null;

  onAction(engineSwitch, async () => {
    await runAction(() => send("POST", last.engine.state === "paused" ? "/v1/resume" : "/v1/pause"));
    refetch();
  });

  /** Show the calls of the gateway once there are any. Without a unit, they take the place of the figures of units. */
  function updateCalls(gateway, units) {
    const isUsed = gateway !== null && (gateway.requests_today > 0 || gateway.in_flight + gateway.waiting > 0);
    for (const each of [calls, cost]) show(each.node, isUsed);
    const hasUnits = Object.values(units).some((each) => each > 0);
    for (const each of Object.values(tiles)) show(each.node, hasUnits || !isUsed);
    show(all.node, hasUnits || !isUsed);
    if (!isUsed) return;
    const refused = gateway.refused_per_minute ? `, ${plural(gateway.refused_per_minute, "429")}` : "";
    calls.set(
      count(gateway.in_flight),
      `${count(gateway.waiting)} waiting, ${count(gateway.per_minute)}/min${refused}`,
    );
    cost.set(costText(gateway.cost_today), `${count(tokenSum(gateway.tokens_today))} tokens`);
  }

  function update({ status, gateway }) {
    const { engine, pool: size, units } = status;
    if (last && last.engine.state !== engine.state) announce(`The engine is ${engine.state}.`);
    last = status;
    setText(state.lastElementChild, engine.state);
    setAttribute(state, "data-state", engine.state);
    const leader = engine.leader ? `; ${engine.leader} leads` : "";
    setAttribute(
      state,
      "title",
      engine.since ? `since ${clockTime(engine.since)}, version ${engine.version}${leader}` : null,
    );
    show(engineSwitch, engine.state !== "standby");
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
    tiles.done.set(count(units.done), `of ${count(Object.values(units).reduce((sum, each) => sum + each, 0))}`);
    const stopped = units.quarantined + units.unverified + units.held;
    tiles.failed.set(count(stopped), stoppedNote(units));
    updateCalls(gateway, units);
    all.update({ ...units, parked: size.parked, waiting: size.waiting });
    tick();
  }

  function tick() {
    if (!last) return;
    const at = last.next_resume_at;
    tiles.resume.set(
      at === null ? NOTHING : at <= now() ? "due" : countdown(at - now()),
      at === null ? "nothing is parked" : `at ${clockTime(at)}`,
    );
    tiles.pace.set(count(Math.round(last.pace)), "units per hour");
    tiles.eta.set(last.eta === null ? NOTHING : clockTime(last.eta), last.eta === null ? "unknown" : until(last.eta));
  }

  return { update, tick };
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
