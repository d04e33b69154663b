// The keys of the page. They do nothing while text is typed, while a dialog is open, or with Ctrl, Alt or Meta.

import { el } from "./dom.js";

const PAUSE_MS = 1500; // between the two keys of `g u`
const KEYS = [
  ["/", "search the units"],
  ["g u", "go to the units; the arrow keys move from row to row, Enter opens one"],
  ["g c", "go to the campaigns"],
  ["Esc", "revert typed input, close what is open"],
  ["?", "show these keys"],
];

export function makeKeys(dialog, { searchUnits, goToUnits, goToCampaigns }) {
  const list = el("dl");
  for (const [keys, what] of KEYS) {
    const pressed = keys.split(" ").flatMap((key) => [" ", el("kbd", { text: key })]);
    list.append(el("dt", {}, ...pressed.slice(1)), el("dd", { text: what }));
  }
  dialog.append(
    el(
      "form",
      { method: "dialog" },
      el("h2", { id: "keys-title", text: "Keys" }),
      list,
      el("div", { class: "buttons" }, el("button", { class: "button", text: "Close" })),
    ),
  );
  const after = { "": { "/": searchUnits, "?": () => dialog.showModal() }, g: { u: goToUnits, c: goToCampaigns } };
  let prefix = "";
  let timer = 0;

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey) return;
    if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
    const action = after[prefix][event.key];
    clearTimeout(timer);
    prefix = prefix === "" && event.key === "g" ? "g" : "";
    if (prefix) timer = setTimeout(() => (prefix = ""), PAUSE_MS);
    if (!action) return;
    event.preventDefault(); // else the key would be typed into the field that gets the focus
    action();
  });
}

function isTyping(target) {
  return target instanceof Element && target.closest("input, select, textarea, [contenteditable]") !== null;
}
