// The timeline: sessions as bars with their marks, and below it a chart of one scope. It is fetched separately from the
// overview, because it is larger and changes more slowly.

import { makeChart } from "./chart.js";
import { el, setText, show, syncChildren } from "./dom.js";
import { emptyState } from "./empty_state.js";
import { plural } from "./format.js";
import { get } from "./requests.js";
import { makeSessionBars } from "./session_bars.js";
import { throttled } from "./throttle.js";

const RANGES = [1, 6, 24];
const REFETCH_MS = 3000;
const MIN_SECONDS = 60;
const POOL = "sessions";
const ENDINGS = { running: "running", done: "done", parked: "parked", quarantined: "failed", other: "other ending" };
const FAILED = new Set(["failed", "quarantined", "unverified"]);
const MARKS = {
  rate_limited: ["mark-429", "429 or overload"],
  overloaded: ["mark-429", "429 or overload"],
  unreachable: ["mark-unreachable", "nobody answered"],
  window_closed: ["mark-window", "window spent"],
  limit_step: ["mark-step", "limit step"],
  platform_limit: ["mark-step", "limit step"],
  account_held: ["mark-held", "account held"],
};

export function makeTimeline(root, { openUnit, state }) {
  const body = root.querySelector(".body");
  const bars = makeSessionBars(openUnit);
  const chart = makeChart();
  const empty = emptyState("No sessions in these hours", "Sessions appear here as bars while they run.");
  const picker = el("select", { "aria-label": "Scope of the chart", onchange: () => pick(picker.value) });
  const chartHead = el(
    "div",
    { class: "chart-head" },
    el("h3", { text: "In flight against the effective limit" }),
    picker,
  );
  const cut = el("p", { class: "note", hidden: true });
  const legend = el("ul", { class: "legend", "aria-label": "Legend" });
  body.append(empty, bars.node, cut, legend, chartHead, chart.node);
  root.querySelector(".controls").append(ranges());

  let data = null;
  const refetch = throttled(fetchTimeline, REFETCH_MS);

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
      return; // app.js shows that the server is unreachable; the next event retries
    }
    draw();
  }

  function draw() {
    if (!data) return;
    const hasBars = data.sessions.length + data.marks.length > 0;
    show(empty, !hasBars);
    show(bars.node, hasBars);
    syncChildren(
      legend,
      legendOf(data),
      ([kind]) => kind,
      ([kind, text]) => ({ node: el("li", {}, el("i", { class: `key ${kind}` }), text) }),
    );
    const seconds = shownSeconds(data, state.get("hours"));
    bars.update(data, seconds);
    const leftOut = data.left_out.sessions;
    show(cut, leftOut > 0);
    setText(cut, `${plural(leftOut, "shorter session")} not shown.`);
    const scopes = data.series.map((each) => each.scope);
    syncChildren(
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
      bars.tick();
      chart.tick();
    },
  };
}

/** Return the chosen range, or a shorter one if everything began later, so that the first minutes are not a hairline. */
function shownSeconds({ to, sessions, marks }, hours) {
  const first = Math.min(to, ...sessions.map((each) => each.started_at), ...marks.map((each) => each.at));
  return Math.min(hours * 3600, Math.max(MIN_SECONDS, (to - first) * 1.05));
}

/** Return what is drawn, as pairs of a class and a word: a legend explains nothing that is not there. */
function legendOf({ sessions, marks }) {
  const endings = new Set(sessions.map(({ ended_at: at, ending }) => (at === null ? "running" : kindOf(ending))));
  const shown = Object.entries(ENDINGS).filter(([kind]) => endings.has(kind));
  const found = new Map(marks.flatMap(({ kind }) => (MARKS[kind] ? [MARKS[kind]] : [])));
  const order = [...new Map(Object.values(MARKS)).keys()];
  return [...shown, ...order.filter((kind) => found.has(kind)).map((kind) => [kind, found.get(kind)])];
}

function kindOf(ending) {
  if (FAILED.has(ending)) return "quarantined";
  return ending in ENDINGS ? ending : "other";
}
