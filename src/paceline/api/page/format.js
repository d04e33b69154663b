// Numbers and times as people read them. No DOM, no state but the difference between this clock and the server's.

const COUNT = new Intl.NumberFormat("en");
const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const SECONDS = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "short", hour: "2-digit", minute: "2-digit" });
const DATE = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const WHOLE = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });
const A_DAY = 86400;
const TURNERS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export const NOTHING = "–";
export const STATES = ["done", "running", "parked", "waiting", "quarantined", "held", "cancelled"];

let ahead = 0;

/** Countdowns follow the server's clock: the two machines need not agree. */
export function learnServerTime(at) {
  ahead = at - Date.now() / 1000;
}

export function now() {
  return Date.now() / 1000 + ahead;
}

/** Text whose order is the one it is read in: characters that turn the order of others are shown as what they are. */
export function visible(text) {
  return String(text).replace(TURNERS, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

export function count(value) {
  return value === null || value === undefined ? NOTHING : COUNT.format(value);
}

/** `1 unit`, `2 units` */
export function counted(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

export function percent(ratio) {
  return `${Math.round(ratio * 100)}%`;
}

/** `14:30`, `Mon 14:30`, `3 Dec, 14:30`: as much of it as tells it from now. */
export function clockTime(at) {
  if (at === null || at === undefined) return NOTHING;
  if (dateOf(at).toDateString() === new Date().toDateString()) return written(TIME, at);
  return written(Math.abs(at - now()) < 6 * A_DAY ? DAY : DATE, at);
}

export function clockSeconds(at) {
  return written(SECONDS, at);
}

export function wholeMoment(at) {
  return at === null || at === undefined ? NOTHING : written(WHOLE, at);
}

function dateOf(at) {
  return new Date((at - ahead) * 1000);
}

/** One time beyond the calendar must not keep the rest of the page from being shown. */
function written(format, at) {
  const date = dateOf(at);
  return Number.isNaN(date.getTime()) ? "never" : format.format(date);
}

/** A length of time in one or two units: `12 s`, `4 min`, `2 h 05 min`, `3 d 4 h`. */
export function span(seconds) {
  const left = Math.max(0, seconds);
  if (left < 9.95) return `${left < 0.95 ? left.toFixed(1) : Math.round(left)} s`;
  if (left < 99.5) return `${Math.round(left)} s`;
  const minutes = Math.round(left / 60);
  if (minutes < 100) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** What is left, to the second: `0:23`, `12:05`, `1:02:03`; days above two. */
export function countdown(seconds) {
  const left = Math.max(0, Math.ceil(seconds));
  if (left >= 2 * A_DAY) return `${Math.floor(left / A_DAY)} d ${Math.floor((left % A_DAY) / 3600)} h`;
  const [hours, minutes, rest] = [Math.floor(left / 3600), Math.floor((left % 3600) / 60), left % 60];
  const tail = `${hours ? String(minutes).padStart(2, "0") : minutes}:${String(rest).padStart(2, "0")}`;
  return hours ? `${hours}:${tail}` : tail;
}

export function ago(at) {
  const seconds = now() - at;
  return seconds < 1 ? "now" : `${span(seconds)} ago`;
}

export function until(at) {
  return at <= now() ? "due" : `in ${span(at - now())}`;
}

/** The state as people see it: a parked unit is stored as a todo one with a time. */
export function phaseOf(unit) {
  if (unit.state !== "todo") return unit.state;
  return unit.resume_at === null || unit.resume_at === undefined ? "waiting" : "parked";
}
