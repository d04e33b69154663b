// The engine strip: the figures of the whole fleet, and its two controls, pool and pause.

import { el, icon, onAction, setAttribute, setIcon, setText, show } from "./dom.js";
import { clockTime, count, countdown, NOTHING, now, until } from "./format.js";
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
  const all = makeStateBar("All units");
  root.append(
    el(
      "div",
      { class: "tiles" },
      el("div", { class: "tile pool" }, el("h3", { text: "Pool" }), pool.node, poolNote),
      ...Object.values(tiles).map((each) => each.node),
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

  function update({ status }) {
    const { engine, pool: size, units } = status;
    if (last && last.engine.state !== engine.state) announce(`The engine is ${engine.state}.`);
    last = status;
    setText(state.lastElementChild, engine.state);
    setAttribute(state, "data-state", engine.state);
    const leader = engine.leader ? `; ${engine.leader} leads` : "";
    setAttribute(state, "title", engine.since ? `since ${clockTime(engine.since)}, version ${engine.version}${leader}` : null);
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
    tiles.eta.set(
      last.eta === null ? NOTHING : clockTime(last.eta),
      last.eta === null ? "unknown" : until(last.eta),
    );
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
