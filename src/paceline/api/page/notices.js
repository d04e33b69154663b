// What the page says by itself: toasts, announcements for screen readers, and the question before anything destructive.

import { el, icon, setText } from "./dom.js";

const TOAST_SECONDS = 8;
const MOST_TOASTS = 4;

export function toast(text, kind = "info") {
  const place = document.getElementById("toasts");
  const close = el(
    "button",
    { type: "button", class: "plain", "aria-label": "Dismiss", onclick: () => node.remove() },
    icon("close"),
  );
  const role = kind === "error" ? "alert" : "status";
  const node = el(
    "div",
    { class: `toast ${kind}`, role },
    icon(kind === "error" ? "warning" : "check"),
    el("span", { text }),
    close,
  );
  while (place.children.length >= MOST_TOASTS) place.firstElementChild.remove();
  place.append(node);
  const leave = () => (node.matches(":hover, :focus-within") ? setTimeout(leave, 1000) : node.remove());
  setTimeout(leave, TOAST_SECONDS * 1000);
}

/** Important changes, read out once; the page itself shows them where they belong. */
export function announce(text) {
  setText(document.getElementById("announcer"), text);
}

/** Runs an action and tells how it went; whether it went well. */
export async function attempt(action, done) {
  try {
    await action();
  } catch (error) {
    toast(error.message, "error");
    return false;
  }
  if (done) toast(done);
  return true;
}

/** True only if the person says so. The harmless answer has the focus. */
export function confirmed(title, text, yes) {
  const dialog = document.getElementById("confirm");
  setText(document.getElementById("confirm-title"), title);
  setText(document.getElementById("confirm-text"), text);
  setText(document.getElementById("confirm-yes"), yes);
  dialog.returnValue = "no";
  dialog.showModal();
  document.getElementById("confirm-no").focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
