// Formats of numbers and times for people. No DOM. The only state is the offset between this clock and the server's.

const COUNT = new Intl.NumberFormat("en");
const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const SECONDS = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "short", hour: "2-digit", minute: "2-digit" });
const DATE = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const WHOLE = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });
const A_DAY = 86400;
const SIZES = [
  [1e12, "TB"],
  [1e9, "GB"],
  [1e6, "MB"],
  [1e3, "kB"],
];
const BIDI_CONTROLS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export const NOTHING = "–";
export const STATES = ["done", "running", "parked", "waiting", "unverified", "quarantined", "held", "cancelled"];

let clockOffset = 0;

/** Set the clock offset: countdowns follow the server's clock. */
export function syncClock(at) {
  clockOffset = at - Date.now() / 1000;
}

export function now() {
  return Date.now() / 1000 + clockOffset;
}

/** Escape characters that change the reading order, so that no name can look like another. */
export function visible(text) {
  return String(text).replace(BIDI_CONTROLS, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

export function count(value) {
  return value === null || value === undefined ? NOTHING : COUNT.format(value);
}

/** `512 B`, `4 kB`, `12.3 GB`, `128 GB`: three digits are enough. */
export function bytes(value) {
  const [factor, unit] = SIZES.find(([each]) => value >= each) ?? [1, "B"];
  const number = value / factor;
  return `${number < 99.95 ? Number(number.toFixed(1)) : Math.round(number)} ${unit}`;
}

/** `$0.0042`, `$1.20`, `$1,234`: less than a cent needs its digits, as in the terminal; large sums do not. */
export function dollars(value) {
  if (value > 0 && value < 0.01) return `$${value.toLocaleString("en", { maximumSignificantDigits: 2, maximumFractionDigits: 20 })}`;
  const digits = value >= 1000 ? 0 : 2;
  return `$${value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })}`;
}

/** `9,999`, `23.4k`, `1.2M`: large numbers in little room. */
export function compact(value) {
  const [factor, unit] = [[1e9, "B"], [1e6, "M"], [1e4, "k"]].find(([each]) => value >= each) ?? [1, ""];
  if (!unit) return count(value);
  const number = value / (unit === "k" ? 1e3 : factor);
  return `${number < 99.95 ? Number(number.toFixed(1)) : Math.round(number)}${unit}`;
}

/** `1 unit`, `2 units` */
export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

export function percent(ratio) {
  return `${Math.round(ratio * 100)}%`;
}

/** `14:30`, `Mon 14:30`, `3 Dec, 14:30`: the shortest form that is unambiguous now. */
export function clockTime(at) {
  if (at === null || at === undefined) return NOTHING;
  if (dateOf(at).toDateString() === new Date().toDateString()) return formatted(TIME, at);
  return formatted(Math.abs(at - now()) < 6 * A_DAY ? DAY : DATE, at);
}

export function clockSeconds(at) {
  return formatted(SECONDS, at);
}

export function fullTime(at) {
  return at === null || at === undefined ? NOTHING : formatted(WHOLE, at);
}

function dateOf(at) {
  return new Date((at - clockOffset) * 1000);
}

/** Format a time, or return "never" for one outside the calendar, which would raise and stop the page. */
function formatted(format, at) {
  const date = dateOf(at);
  return Number.isNaN(date.getTime()) ? "never" : format.format(date);
}

/** Format a duration in one or two units: `12 s`, `4 min`, `2 h 05 min`, `3 d 4 h`. */
export function duration(seconds) {
  const left = Math.max(0, seconds);
  if (left < 9.95) return `${left < 0.95 ? left.toFixed(1) : Math.round(left)} s`;
  if (left < 99.5) return `${Math.round(left)} s`;
  const minutes = Math.round(left / 60);
  if (minutes < 100) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Format the remaining time to the second: `0:23`, `12:05`, `1:02:03`; in days and hours from two days on. */
export function countdown(seconds) {
  const left = Math.max(0, Math.ceil(seconds));
  if (left >= 2 * A_DAY) return `${Math.floor(left / A_DAY)} d ${Math.floor((left % A_DAY) / 3600)} h`;
  const [hours, minutes, rest] = [Math.floor(left / 3600), Math.floor((left % 3600) / 60), left % 60];
  const tail = `${hours ? String(minutes).padStart(2, "0") : minutes}:${String(rest).padStart(2, "0")}`;
  return hours ? `${hours}:${tail}` : tail;
}

export function ago(at) {
  const seconds = now() - at;
  return seconds < 1 ? "now" : `${duration(seconds)} ago`;
}

export function until(at) {
  return at <= now() ? "due" : `in ${duration(at - now())}`;
}

/** Return the displayed state: a stored `todo` unit is `parked` if it waits for a quota window, else `waiting`. */
export function phaseOf(unit) {
  if (unit.state !== "todo") return unit.state;
  return unit.parked ? "parked" : "waiting";
}
