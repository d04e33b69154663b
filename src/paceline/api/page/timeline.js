// The time line: sessions as bars with what happened to them, and below it how full a scope was. Fetched apart from the
// overview, because it is larger and changes more slowly.

import { makeChart } from "./chart.js";
import { el, keyed, setText, show } from "./dom.js";
import { emptyState } from "./empty_state.js";
import { makeLanes } from "./session_bars.js";
import { get } from "./requests.js";
import { paced } from "./throttle.js";
import { counted } from "./format.js";

const RANGES = [1, 6, 24];
const REFETCH_MS = 3000;
const FEWEST_SECONDS = 60;
const POOL = "sessions";
const LEGEND = [
  ["running", "running"],
  ["done", "done"],
  ["parked", "parked"],
  ["quarantined", "failed"],
  ["waiting", "other ending"],
  ["mark-429", "429 or overload"],
  ["mark-window", "window spent"],
  ["mark-step", "limit step"],
  ["mark-held", "account held"],
];

export function makeTimeline(root, { openUnit, state }) {
  const body = root.querySelector(".body");
  const lanes = makeLanes(openUnit);
  const chart = makeChart();
  const empty = emptyState("Nothing has run in these hours", "Sessions appear here as bars while they run.");
  const picker = el("select", { "aria-label": "Scope of the chart", onchange: () => pick(picker.value) });
  const chartHead = el(
    "div",
    { class: "chart-head" },
    el("h3", { text: "In flight against the effective limit" }),
    picker,
  );
  const cut = el("p", { class: "note", hidden: true });
  body.append(empty, lanes.node, cut, legend(), chartHead, chart.node);
  root.querySelector(".controls").append(ranges());

  let data = null;
  const refetch = paced(fetchTimeline, REFETCH_MS);

  function ranges() {
    const name = "range";
    const group = el("fieldset", { class: "choice" }, el("legend", { class: "unseen", text: "Hours shown" }));
    for (const hours of RANGES) {
      const input = el("input", {
        type: "radio",
        name,
        value: String(hours),
        id: `range-${hours}`,
        onchange: () => choose(hours),
      });
      input.checked = state.get("hours") === hours;
      group.append(input, el("label", { for: input.id, text: `${hours} h` }));
    }
    return group;
  }

  function choose(hours) {
    state.set("hours", hours);
    refetch.atOnce();
  }

  function pick(scope) {
    state.set("scope", scope);
    draw();
  }

  async function fetchTimeline() {
    try {
      data = await get(`/v1/timeline?hours=${state.get("hours")}`);
    } catch {
      return; // that the server is away is told elsewhere; the next event asks again
    }
    draw();
  }

  function draw() {
    if (!data) return;
    const hasSessions = data.sessions.length > 0;
    show(empty, !hasSessions);
    show(lanes.node, hasSessions);
    const seconds = shownSeconds(data, state.get("hours"));
    lanes.update(data, seconds);
    const leftOut = data.left_out.sessions;
    show(cut, leftOut > 0);
    setText(cut, `${counted(leftOut, "shorter session")} of these hours left out.`);
    const scopes = data.series.map((each) => each.scope);
    keyed(
      picker,
      scopes,
      (scope) => scope,
      (scope) => ({ node: el("option", { value: scope, text: scope }) }),
    );
    const wanted = scopes.includes(state.get("scope")) ? state.get("scope") : scopes.includes(POOL) ? POOL : scopes[0];
    if (wanted && picker.value !== wanted) picker.value = wanted;
    show(chartHead, scopes.length > 0);
    show(chart.node, scopes.length > 0);
    chart.update(data.series.find((each) => each.scope === wanted) ?? null, seconds);
  }

  return {
    refetch,
    tick() {
      lanes.tick();
      chart.tick();
    },
  };
}

/** The hours that were asked for, or less where everything began later: the first minutes need not be a hairline. */
function shownSeconds({ to, sessions, marks }, hours) {
  const first = Math.min(to, ...sessions.map((each) => each.started_at), ...marks.map((each) => each.at));
  return Math.min(hours * 3600, Math.max(FEWEST_SECONDS, (to - first) * 1.05));
}

function legend() {
  const list = el("ul", { class: "legend", "aria-label": "Legend" });
  for (const [kind, text] of LEGEND) list.append(el("li", {}, el("i", { class: `key ${kind}` }), text));
  return list;
}
