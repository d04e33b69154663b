// The buttons of one unit: try it again, take it as done, stop it, cancel it, and what the reasons it waits suggest.

import { actionButton, el, setText, show } from "./dom.js";
import { confirmAction, runAction } from "./notices.js";
import { send } from "./requests.js";

const STOPPED = ["quarantined", "unverified", "held", "cancelled"];
const OWN_COMMANDS = /^`?paceline (retry|accept|logs|show|pause|cancel) /; // what a button or a tab of the panel does
const OTHER_COMMANDS = /^paceline (resume|restore) (\S+)$/;

/** `onChanged()` is called after each action. */
export function makeUnitActions(onChanged) {
  let unit = null;
  let other = null;
  const small = { class: "button small" };
  const retry = actionButton({ ...small, icon: "retry" }, "Retry", () =>
    act("retry", undefined, `${unit.id} will run again.`),
  );
  const fresh = actionButton(
    { ...small, icon: "retry", title: "Try it again without its conversation, on any account" },
    "Start over",
    () => act("retry", { fresh: true }, `${unit.id} starts over.`),
  );
  const accept = actionButton({ ...small, icon: "check", title: "Take it as done" }, "Accept", () =>
    act("accept", undefined, `${unit.id} is taken as done.`),
  );
  const stop = actionButton({ ...small, icon: "paused" }, "Stop", () =>
    act("pause", { at_turn: true }, stopText(unit)),
  );
  const cancel = actionButton({ class: "button small quiet-danger", icon: "close" }, "Cancel", async () => {
    const { id, state } = unit;
    const session = state === "running" ? "Its session is ended at once. " : "";
    const isConfirmed = await confirmAction(`Cancel ${id}?`, `${session}Retry undoes it.`, "Cancel the unit");
    if (isConfirmed && unit?.id === id) await act("cancel", undefined, `${id} is cancelled.`);
  });
  const suggested = actionButton({ ...small, icon: "running" }, "", async () => {
    const { path, done } = other;
    await runAction(() => send("POST", path), done);
    onChanged();
  });
  const node = el("div", { class: "unit-actions" }, suggested, retry, fresh, accept, stop, cancel);

  async function act(verb, body, done) {
    const path = `/v1/units/${encodeURIComponent(unit.id)}/${verb}`;
    await runAction(() => send("POST", path, body), done);
    onChanged();
  }

  return {
    node,
    update(latest, hints) {
      unit = latest;
      other = hints.map(suggestionOf).find(Boolean) ?? null;
      show(suggested, other !== null);
      setText(suggested.lastChild, other?.label ?? "");
      show(retry, unit !== null && STOPPED.includes(unit.state));
      show(fresh, unit !== null && hints.some((hint) => hint.includes(" --fresh ")));
      show(accept, unit?.state === "unverified");
      show(stop, unit !== null && (unit.state === "todo" || isWorking(unit)));
      show(cancel, unit !== null && unit.state !== "done" && unit.state !== "cancelled");
    },
  };
}

/** Return what is left of a hint where commands for a terminal are buttons. */
export function hintText(hint) {
  const left = (hint ?? "").split("; ").filter((each) => !OWN_COMMANDS.test(each) && !OTHER_COMMANDS.test(each));
  return left.join("; ");
}

function isWorking({ state, phase }) {
  return state === "running" && (phase === null || phase === "working");
}

function stopText({ id, state }) {
  return state === "running" ? `${id} stops at the end of its turn.` : `${id} is held until you retry it.`;
}

function suggestionOf(hint) {
  const [, verb, name] = OTHER_COMMANDS.exec(hint) ?? [];
  if (!verb) return null;
  const folded = encodeURIComponent(name);
  return verb === "resume"
    ? { label: `Resume ${name}`, path: `/v1/campaigns/${folded}/resume`, done: `${name} continues.` }
    : { label: `Restore ${name}`, path: `/concurrency/restore/${folded}`, done: `${name} is restored.` };
}
