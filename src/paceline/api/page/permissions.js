// Whether this tab may change anything now: it was opened with the printed address, and the server answers.

import { changeHeaders } from "./change_key.js";

let isConnected = true;

/** Whether the server would accept a change from this tab. Without the value of the printed address it only reads. */
export function isReadOnly() {
  return Object.keys(changeHeaders()).length === 0;
}

export function canChange() {
  return isConnected && !isReadOnly();
}

/** Mark a control that changes something. It is disabled while nothing can be changed. */
export function marksChange(control) {
  control.dataset.changes = "";
  control.disabled = !canChange();
  return control;
}

export function setConnected(value) {
  isConnected = value;
  for (const control of document.querySelectorAll("[data-changes]")) control.disabled = !canChange();
}
