// A chart of the slots in flight and the effective limit of one scope, drawn by uPlot.

import { el, setAttribute } from "./dom.js";
import { clockSeconds, clockTime, now } from "./format.js";
import { PIXELS } from "./session_bars.js";

const HEIGHT = 150;
const LEAST_SCALE = 4;
const Plot = () => window.uPlot;

export function makeChart() {
  const node = el("div", { class: "chart", role: "img" });
  let plot = null;
  let series = null;
  let seconds = 0;
  let drawnAt = 0;

  new ResizeObserver(() => {
    if (plot && node.clientWidth) plot.setSize({ width: node.clientWidth, height: HEIGHT });
    else draw();
  }).observe(node);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    plot?.destroy();
    plot = null;
    draw();
  });

  function draw() {
    if (!series || !node.clientWidth) return;
    drawnAt = now();
    const data = columns(series.points, drawnAt - seconds, drawnAt);
    plot ??= build(node, data, () => [drawnAt - seconds, drawnAt]);
    plot.setData(data);
    node.dataset.top = String(topOf(data));
    const latest = series.points.at(-1);
    setAttribute(
      node,
      "aria-label",
      `${series.scope}: ${latest?.in_flight ?? 0} in flight, limit ${latest?.limit ?? "none"}`,
    );
  }

  return {
    node,
    update(chosen, shownSeconds) {
      [series, seconds] = [chosen, shownSeconds];
      draw();
    },
    tick() {
      if (now() - drawnAt > seconds / PIXELS) draw();
    },
  };
}

/** Return the points as columns. Each value applies until the next point, the last one until now. */
function columns(points, from, to) {
  const inRange = points.filter((point) => point.at >= from);
  const before = points.filter((point) => point.at < from).at(-1);
  const all = [...(before ? [{ ...before, at: from }] : []), ...inRange];
  if (all.length) all.push({ ...all.at(-1), at: to });
  return [all.map((point) => point.at), all.map((point) => point.in_flight), all.map((point) => point.limit)];
}

/** Return the highest value to show. A limit far above all use is cut off: it would flatten the line of the use. */
function highest([, used, limits]) {
  const most = Math.max(0, ...used);
  return Math.max(most, Math.min(limits.at(-1) ?? 0, 2 * Math.max(most, LEAST_SCALE)));
}

function topOf(data) {
  return Math.max(2, Math.ceil(highest(data) * 1.15));
}

function build(node, data, range) {
  const style = getComputedStyle(node);
  const colour = (name) => style.getPropertyValue(name).trim();
  const uPlot = Plot();
  const stepped = uPlot.paths.stepped({ align: 1 });
  const font = `11px ${style.fontFamily}`;
  const axis = {
    stroke: colour("--muted"),
    font,
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
  };
  const options = {
    width: node.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
    padding: [8, 20, 0, 0],
    scales: {
      x: { time: true, range },
      y: { range: (plot) => [0, topOf(plot.data)] },
    },
    axes: [
      {
        ...axis,
        size: 24,
        gap: 4,
        space: 64,
        values: (_, splits, __, ___, step) =>
          splits.map((at) => (step < 60 ? clockSeconds(at) : clockTime(at).slice(-5))),
      },
      { ...axis, size: 44, gap: 6, space: 28, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] },
    ],
    series: [
      {},
      {
        label: "in flight",
        stroke: colour("--running"),
        fill: `${colour("--running")}2e`,
        width: 1.5,
        paths: stepped,
        points: { show: false },
      },
      { label: "limit", stroke: colour("--text"), dash: [5, 4], width: 1.25, paths: stepped, points: { show: false } },
    ],
  };
  return new uPlot(options, data, node);
}
