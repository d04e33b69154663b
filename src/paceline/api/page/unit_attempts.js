// The attempts of one unit, from its events: when each began, how long it took, and how it ended.

import { el, setAttribute, setText, show, syncChildren } from "./dom.js";
import { clockTime, duration, fullTime } from "./format.js";

const STARTS = new Set(["unit.started", "unit.resumed"]);
const ENDS = /^unit\.(done|failed|parked|requeued|held|unverified|quarantined|cancelled)$/;

/** `choose(attempt)` is called with the id of the attempt whose output is wanted. */
export function makeUnitAttempts(choose) {
  const node = el("ol", { class: "attempts", "aria-label": "Attempts" });
  return {
    node,
    update(history, chosen) {
      const attempts = attemptsOf(history);
      show(node, attempts.length > 1);
      const last = attempts.at(-1)?.id;
      syncChildren(
        node,
        attempts.map((each) => ({ ...each, isChosen: each.id === (chosen || last) })),
        (each) => each.id,
        (each) => attemptItem(each, () => choose(each.id === last ? "" : each.id)),
      );
    },
  };
}

/** Return the attempts of a unit, the oldest first. */
export function attemptsOf(history) {
  const found = [];
  for (const event of history) {
    if (STARTS.has(event.name)) found.push({ id: event.fields.attempt, number: found.length + 1, at: event.at });
    else if (found.length && ENDS.test(event.name) && !found.at(-1).ending) {
      Object.assign(found.at(-1), { ending: event.name.slice(5), endedAt: event.at, reason: event.fields.reason });
    }
  }
  return found;
}

function attemptItem({ at }, choose) {
  const button = el("button", { type: "button", title: fullTime(at), onclick: choose });
  return {
    node: el("li", {}, button),
    update({ number, ending, endedAt, reason, isChosen }) {
      const took = ending ? `, ${ending} after ${duration(endedAt - at)}` : ", not ended";
      setText(button, `${number}: ${clockTime(at)}${took}`);
      setAttribute(button, "title", [fullTime(at), reason].filter(Boolean).join("\n"));
      setAttribute(button, "aria-pressed", String(isChosen));
    },
  };
}
