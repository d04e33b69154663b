// A bar of units with one segment per state. It is decorative: the numbers are beside it.

import { el, setAttribute } from "./dom.js";
import { plural, STATES } from "./format.js";

export function makeStateBar(name) {
  const parts = Object.fromEntries(STATES.map((state) => [state, el("i", { class: `segment ${state}` })]));
  const node = el("div", { class: "segments", role: "img" }, ...Object.values(parts));
  return {
    node,
    update(counts) {
      const total = STATES.reduce((sum, state) => sum + (counts[state] ?? 0), 0);
      for (const state of STATES) {
        const share = total ? (100 * (counts[state] ?? 0)) / total : 0;
        parts[state].style.flexBasis = `${share}%`;
        parts[state].classList.toggle("none", !counts[state]);
      }
      const labels = STATES.filter((state) => counts[state]).map((state) => `${plural(counts[state], state, state)}`);
      setAttribute(node, "aria-label", `${name}: ${labels.join(", ") || "none"}`);
    },
  };
}
