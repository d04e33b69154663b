// Notices of the page: toasts, announcements for screen readers, and the question before a destructive action.

import { el, icon, setText } from "./dom.js";

const TOAST_SECONDS = 8;
const MAX_TOASTS = 4;

export function toast(text, kind = "info") {
  const container = document.getElementById("toasts");
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
  while (container.children.length >= MAX_TOASTS) container.firstElementChild.remove();
  container.append(node);
  raise(container);
  const leave = () => (node.matches(":hover, :focus-within") ? setTimeout(leave, 1000) : node.remove());
  setTimeout(leave, TOAST_SECONDS * 1000);
}

/** Put the toasts above everything: a dialog covers what is outside of it, and switches it off. */
function raise(container) {
  const dialog = document.querySelector("dialog[open]") ?? document.body;
  if (container.parentNode !== dialog) dialog.append(container);
  if (container.matches(":popover-open")) container.hidePopover();
  container.showPopover();
  if (dialog === document.body) return;
  dialog.addEventListener("close", () => {
    document.body.append(container);
    if (container.childElementCount > 0) container.showPopover();
  }, { once: true });
}

/** Announce an important change to screen readers, once. The section itself shows it to everybody. */
export function announce(text) {
  setText(document.getElementById("announcer"), text);
}

/** Run an action and show its result as a toast. Returns whether it succeeded. */
export async function runAction(action, done) {
  try {
    await action();
  } catch (error) {
    toast(error.message, "error");
    return false;
  }
  if (done) toast(done);
  return true;
}

/** Ask the user and resolve to true only if they confirm. The harmless answer has the focus. */
export function confirmAction(title, text, yes) {
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
