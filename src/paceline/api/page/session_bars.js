// Sessions as bars on a canvas, packed into as few rows as possible, one group per account.

import { el, setAttribute, setText, show } from "./dom.js";
import { clockSeconds, clockTime, duration, now, plural, visible } from "./format.js";

export const PIXELS = 600; // approximate width of the timeline; changes below one pixel need no redraw

const [LEFT, RIGHT, HEAD, AXIS] = [44, 20, 20, 22];
const GAP = 12;
const MAX_HEIGHT = 420;
const MAX_ROWS = 12; // sessions of one account side by side; more are drawn as their number over time
const DENSITY_HEIGHT = 72;
const ENDED_ALPHA = 0.78;
const STEPS = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600];
const COLOURS = {
  running: "--running",
  done: "--done",
  parked: "--parked",
  failed: "--failed",
  quarantined: "--failed",
  unverified: "--failed",
  held: "--held",
};
const MARK_LABELS = {
  rate_limited: "429",
  unreachable: "nobody answered",
  overloaded: "the provider is overloaded",
  window_closed: "window spent",
  window_reopened: "window reopened",
  limit_step: "limit step",
  platform_limit: "the provider’s own limit",
  account_held: "account held",
};

export function makeSessionBars(openUnit) {
  const canvas = el("canvas", { role: "img" });
  const tip = el("p", { class: "tip", hidden: true });
  const node = el("div", { class: "session-bars" }, canvas, tip);
  let data = null;
  let seconds = 0;
  let groups = [];
  let hits = [];
  let drawnAt = 0;
  let pointer = null; // where it rests on the canvas

  new ResizeObserver(draw).observe(node);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  canvas.addEventListener("pointermove", (event) => {
    pointer = [event.offsetX, event.offsetY];
    point();
  });
  canvas.addEventListener("pointerleave", () => {
    pointer = null;
    show(tip, false);
  });
  canvas.addEventListener("click", (event) => {
    const hit = hitAt(event.offsetX, event.offsetY);
    if (hit?.unit) openUnit(hit.unit);
  });

  function hitAt(x, y) {
    return hits.findLast((hit) => x >= hit.left && x <= hit.right && y >= hit.top && y <= hit.bottom);
  }

  /** Show what is below the pointer. */
  function point() {
    const [x, y] = pointer;
    const hit = hitAt(x, y);
    canvas.classList.toggle("over-unit", Boolean(hit?.unit));
    show(tip, Boolean(hit));
    if (!hit) return;
    setText(tip, hit.text);
    const width = tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(x + 12, node.clientWidth - width - 4))}px`;
    tip.style.top = `${y + 14}px`;
  }

  function draw() {
    const width = node.clientWidth;
    if (!data || !width) return;
    drawnAt = now();
    const colours = getComputedStyle(node);
    const colour = (name) => colours.getPropertyValue(name).trim();
    const laned = groups.filter((group) => group.rowCount <= MAX_ROWS);
    const totalRows = laned.reduce((sum, group) => sum + group.rowCount, 0);
    const free = MAX_HEIGHT - AXIS - groups.length * (HEAD + GAP) - (groups.length - laned.length) * DENSITY_HEIGHT;
    const pitch = Math.max(3, Math.min(12, Math.floor(free / Math.max(1, totalRows))));
    const bodyOf = (group) => (group.rowCount > MAX_ROWS ? DENSITY_HEIGHT : group.rowCount * pitch);
    const height = AXIS + groups.reduce((sum, group) => sum + HEAD + GAP + bodyOf(group), 0);
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = `11px ${colours.fontFamily}`;
    const [from, to] = [drawnAt - seconds, drawnAt];
    const atX = (at) => LEFT + ((Math.max(from, Math.min(to, at)) - from) / (to - from)) * (width - LEFT - RIGHT);
    hits = [];
    drawGrid(pen, { from, to, atX, width, height, colour });
    let top = 0;
    for (const group of groups) {
      const bottom = top + HEAD + bodyOf(group);
      drawGroup(pen, group, { top, bottom, pitch, atX, from, to, width, colour, hits });
      top = bottom + GAP;
    }
    if (pointer) point(); // the bars move below a pointer that rests
  }

  return {
    node,
    update(timeline, shownSeconds) {
      [data, seconds] = [timeline, shownSeconds];
      groups = groupByAccount(timeline);
      const refusals = timeline.marks.filter((mark) => mark.kind === "rate_limited").length;
      const closings = timeline.marks.filter((mark) => mark.kind === "window_closed").length;
      const sessions = `${plural(timeline.sessions.length, "session")} in the last ${duration(seconds)}`;
      const marks = `${plural(refusals, "429")}, ${plural(closings, "closed window")}`;
      setAttribute(canvas, "aria-label", `${sessions}, ${marks}`);
      draw();
    },
    tick() {
      if (now() - drawnAt > seconds / PIXELS) draw();
    },
  };
}

/** Group sessions by account and pack them into rows. Add the marks of every scope above, at or below the account. */
function groupByAccount({ sessions, marks }) {
  const groups = new Map();
  for (const session of [...sessions].sort((a, b) => a.started_at - b.started_at)) {
    const name = (session.scope ?? "").split("/").slice(0, 2).join("/") || session.account || "this machine";
    if (!groups.has(name)) groups.set(name, { name, ends: [], bars: [], rowCount: 0, marks: [], bands: [] });
    const group = groups.get(name);
    let row = group.ends.findIndex((end) => end <= session.started_at);
    if (row < 0) row = group.ends.length;
    group.ends[row] = session.ended_at ?? Infinity;
    group.rowCount = Math.max(group.rowCount, row + 1);
    group.bars.push({ ...session, row });
  }
  for (const { scope } of marks) {
    const name = (scope ?? "").split("/").slice(0, 2).join("/");
    if (!name || [...groups.keys()].some((each) => touches(name, each))) continue;
    groups.set(name, { name, ends: [], bars: [], rowCount: 1, marks: [], bands: [] }); // of API calls, or of a login that failed at once
  }
  const found = [...groups.values()].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  for (const group of found) {
    const own = marks.filter((mark) => touches(mark.scope ?? "", group.name));
    group.marks = own.filter((mark) => !mark.kind.startsWith("window_"));
    group.bands = bandsOf(own);
  }
  return found;
}

function touches(scope, name) {
  return scope === name || name.startsWith(`${scope}/`) || scope.startsWith(`${name}/`);
}

/** Return one band from each closing to the reopening of the same scope; without a reopening it ends now. */
function bandsOf(marks) {
  const bands = [];
  const open = new Map();
  for (const mark of [...marks].sort((a, b) => a.at - b.at)) {
    if (mark.kind === "window_closed" && !open.has(mark.scope)) {
      const band = { from: mark.at, to: null, scope: mark.scope, detail: mark.detail };
      open.set(mark.scope, band);
      bands.push(band);
    } else if (mark.kind === "window_reopened" && open.has(mark.scope)) {
      open.get(mark.scope).to = mark.at;
      open.delete(mark.scope);
    }
  }
  return bands;
}

function drawGrid(pen, { from, to, atX, width, height, colour }) {
  pen.fillStyle = colour("--muted");
  pen.strokeStyle = colour("--line");
  pen.lineWidth = 1;
  pen.textAlign = "center";
  pen.textBaseline = "alphabetic";
  const step = STEPS.find((each) => ((to - from) / each) * 64 < width - LEFT - RIGHT) ?? STEPS.at(-1);
  const offset = new Date(from * 1000).getTimezoneOffset() * 60;
  for (let at = Math.ceil((from - offset) / step) * step + offset; at <= to; at += step) {
    const x = Math.round(atX(at)) + 0.5;
    pen.beginPath();
    pen.moveTo(x, 2);
    pen.lineTo(x, height - AXIS + 4);
    pen.stroke();
    if (x > LEFT + 8 && x < width - 14)
      pen.fillText(step < 60 ? clockSeconds(at) : clockTime(at).slice(-5), x, height - 6);
  }
}

function drawGroup(pen, group, { top, bottom, pitch, atX, from, to, width, colour, hits }) {
  const rowsTop = top + HEAD;
  for (const band of group.bands) {
    if ((band.to ?? to) < from) continue;
    const [left, right] = [atX(band.from), Math.max(atX(band.from) + 2, atX(band.to ?? to))];
    hatch(pen, left, rowsTop - 2, right - left, bottom - rowsTop + 4, colour("--parked"));
    const end = band.to === null ? "still closed" : `reopened at ${clockTime(band.to)}`;
    const text = `${band.scope}: window spent at ${clockTime(band.from)}, ${end}; ${band.detail}`;
    hits.push({ left, right, top: rowsTop - 2, bottom: bottom + 2, text });
  }
  const place = { rowsTop, bottom, pitch, atX, from, to, colour, hits };
  if (group.rowCount > MAX_ROWS) drawDensity(pen, group, place);
  else drawBars(pen, group, place);
  for (const mark of group.marks) {
    if (mark.at < from) continue;
    drawMark(pen, mark, { x: Math.round(atX(mark.at)) + 0.5, top: rowsTop, bottom, colour });
    const x = atX(mark.at);
    const text = `${clockSeconds(mark.at)} ${mark.scope}: ${MARK_LABELS[mark.kind] ?? mark.kind}, ${mark.detail}`;
    hits.push({ left: x - 5, right: x + 5, top: rowsTop - 12, bottom: bottom + 8, text });
  }
  const isDense = group.rowCount > MAX_ROWS;
  drawTitle(pen, isDense ? `${group.name}, up to ${group.rowCount} at once` : group.name, { top, width, colour });
}

/** Draw the name of a group on a ground of its own: a mark may stand where it begins. */
function drawTitle(pen, title, { top, width, colour }) {
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  pen.fillStyle = colour("--panel");
  pen.fillRect(0, top + 2, Math.min(width / 2, pen.measureText(visible(title)).width) + 6, HEAD - 5);
  pen.fillStyle = colour("--muted");
  pen.fillText(visible(title), 2, top + HEAD / 2, width / 2);
}

function drawBars(pen, group, { rowsTop, pitch, atX, from, to, colour, hits }) {
  for (const bar of group.bars) {
    if ((bar.ended_at ?? to) < from) continue;
    const kind = bar.ended_at === null ? "running" : bar.ending;
    const [left, right] = [atX(bar.started_at), Math.max(atX(bar.started_at) + 1.5, atX(bar.ended_at ?? to))];
    const y = rowsTop + bar.row * pitch;
    pen.fillStyle = colour(COLOURS[kind] ?? "--waiting");
    pen.beginPath();
    pen.roundRect(left, y, right - left, Math.max(2, pitch - 2), Math.min(2.5, pitch / 4));
    pen.globalAlpha = kind === "running" ? 1 : ENDED_ALPHA;
    pen.fill();
    pen.globalAlpha = 1;
    const lasted = `${bar.ended_at === null ? "for" : "after"} ${duration((bar.ended_at ?? to) - bar.started_at)}`;
    const text = `${bar.unit}: ${kind} ${lasted}, from ${clockSeconds(bar.started_at)}`;
    hits.push({ left: left - 1, right: right + 1, top: y - 1, bottom: y + pitch, text, unit: bar.unit });
  }
}

/** Draw how many sessions ran at once, as one area. */
function drawDensity(pen, group, { rowsTop, bottom, atX, from, to, colour, hits }) {
  const changes = [];
  for (const bar of group.bars) {
    if ((bar.ended_at ?? to) < from) continue;
    changes.push([Math.max(from, bar.started_at), 1], [bar.ended_at ?? to, -1]);
  }
  changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const atY = (live) => bottom - (live / group.rowCount) * (bottom - rowsTop);
  let [live, since] = [0, from];
  pen.fillStyle = colour("--running");
  pen.globalAlpha = ENDED_ALPHA;
  pen.beginPath();
  pen.moveTo(atX(from), bottom);
  for (const [at, by] of changes) {
    pen.lineTo(atX(at), atY(live));
    const text = `${group.name}: ${plural(live, "session")} at once from ${clockSeconds(since)}`;
    if (live) hits.push({ left: atX(since), right: atX(at), top: atY(live), bottom, text });
    [live, since] = [live + by, at];
    pen.lineTo(atX(at), atY(live));
  }
  pen.lineTo(atX(since), bottom);
  pen.closePath();
  pen.fill();
  pen.globalAlpha = 1;
}

/** Draw a stem through the rows. Its shape shows the kind: triangle for a 429, ring for no answer, flag for a hold, square for a limit step. */
function drawMark(pen, mark, { x, top, bottom, colour }) {
  const isUnreachable = mark.kind === "unreachable";
  const isRefusal = ["rate_limited", "overloaded"].includes(mark.kind);
  const isHeld = mark.kind === "account_held";
  pen.strokeStyle = pen.fillStyle = colour(isRefusal || isUnreachable ? "--failed" : isHeld ? "--held" : "--accent");
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(x, top - 3);
  pen.lineTo(x, bottom);
  pen.stroke();
  pen.beginPath();
  if (isUnreachable) {
    pen.arc(x, top - 7, 3.5, 0, 2 * Math.PI);
    pen.stroke();
    return;
  }
  if (isRefusal) {
    pen.moveTo(x - 4.5, top - 10);
    pen.lineTo(x + 4.5, top - 10);
    pen.lineTo(x, top - 2);
  } else if (isHeld) {
    pen.moveTo(x, top - 12);
    pen.lineTo(x + 8, top - 8.5);
    pen.lineTo(x, top - 5);
  } else {
    pen.rect(x - 3.5, bottom, 7, 7);
  }
  pen.closePath();
  pen.fill();
}

function hatch(pen, x, y, width, height, colour) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
  pen.globalAlpha = 0.14;
  pen.fillStyle = colour;
  pen.fillRect(x, y, width, height);
  pen.globalAlpha = 0.45;
  pen.strokeStyle = colour;
  pen.lineWidth = 1;
  pen.beginPath();
  for (let at = x - height - ((x - height) % 7); at < x + width; at += 7) {
    pen.moveTo(at, y + height);
    pen.lineTo(at + height, y);
  }
  pen.stroke();
  pen.restore();
}
