// A bar of units, one segment for each state. The numbers stand beside it, so the bar itself is only a picture.

import { el, setAttribute } from "./dom.js";
import { counted, STATES } from "./format.js";

export function segments(name) {
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
      const told = STATES.filter((state) => counts[state]).map((state) => `${counted(counts[state], state, state)}`);
      setAttribute(node, "aria-label", `${name}: ${told.join(", ") || "none"}`);
    },
  };
}
