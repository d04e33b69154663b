// A number that can be edited in place. Updates from the server never overwrite typed input.

import { el, icon, setAttribute, setText, show } from "./dom.js";
import { count } from "./format.js";
import { marksChange } from "./permissions.js";

const LARGEST = 1_000_000; // above it a number is a slip of the finger
let fieldCount = 0;

/**
 * Create a number field. `apply(value)` gets a whole number, or null for an empty field if `canBeEmpty`. It returns
 * whether the value was accepted. `stepper` adds − and + buttons.
 */
export function numberField({ label, min, max = LARGEST, canBeEmpty = false, stepper = false, suffix = "", apply }) {
  let known = null;
  fieldCount += 1;
  const problem = el("p", { class: "field-problem", id: `field-problem-${fieldCount}`, role: "alert", hidden: true });
  const input = el("input", {
    type: "text",
    inputmode: "numeric",
    autocomplete: "off",
    spellcheck: "false",
    maxlength: "20",
    "aria-label": label,
    placeholder: "none",
    class: "number",
  });
  marksChange(input);
  const submit = el(
    "button",
    { type: "submit", class: "button apply", "aria-label": `Apply: ${label}`, hidden: true },
    icon("check"),
  );
  const step = (by, name, symbol) =>
    marksChange(
      el(
        "button",
        { type: "button", class: "button step", "aria-label": `${name}: ${label}`, onclick: () => stepBy(by) },
        icon(symbol),
      ),
    );
  const parts = stepper ? [step(-1, "One less", "minus"), input, step(1, "One more", "plus")] : [input];
  if (suffix) parts.push(el("span", { class: "suffix", text: suffix }));
  const node = el("form", { class: "field", onsubmit: onSubmit, novalidate: true }, ...parts, submit, problem);

  input.addEventListener("input", refresh);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") reset();
    if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      event.preventDefault();
      stepBy(event.key === "ArrowUp" ? 1 : -1);
    }
  });
  input.addEventListener("blur", () => {
    if (parsed() === undefined) reset();
  });

  function shown(value) {
    return value === null || value === undefined ? "" : String(value);
  }

  function parsed() {
    const text = input.value.trim();
    if (text === "") return canBeEmpty ? null : undefined;
    const value = Number(text);
    return /^-?\d+$/.test(text) && value >= min && value <= max ? value : undefined;
  }

  function refresh() {
    const isChanged = input.value.trim() !== shown(known);
    node.classList.toggle("changed", isChanged);
    show(submit, isChanged);
    const isInvalid = isChanged && parsed() === undefined;
    setAttribute(input, "aria-invalid", isInvalid ? "true" : null);
    setAttribute(input, "aria-describedby", isInvalid ? problem.id : null);
    submit.disabled = isInvalid;
    show(problem, isInvalid);
    const orNothing = canBeEmpty ? ", or nothing" : "";
    setText(problem, isInvalid ? `a whole number from ${min} to ${count(max)}${orNothing}` : "");
  }

  function reset() {
    input.value = shown(known);
    refresh();
  }

  function stepBy(by) {
    const from = parsed() ?? known ?? min;
    input.value = shown(Math.min(max, Math.max(min, from + by)));
    refresh();
  }

  async function onSubmit(event) {
    event.preventDefault();
    const value = parsed();
    if (value === undefined || input.value.trim() === shown(known)) return;
    input.readOnly = true;
    try {
      if (await apply(value)) known = value;
    } finally {
      input.readOnly = false;
      reset();
    }
  }

  return {
    node,
    update(value) {
      const isEdited = node.classList.contains("changed") || input.readOnly;
      known = value ?? null;
      if (isEdited) refresh();
      else if (input.value !== shown(known)) reset();
    },
  };
}
