// The text of an empty section: what the user can do next.

import { el } from "./dom.js";

export function emptyState(title, text, commands = []) {
  return el(
    "div",
    { class: "empty", hidden: true }, // until the server has answered, nobody knows whether the section is empty
    el("h3", { text: title }),
    el("p", { text }),
    ...commands.map((command) => el("code", { text: command })),
  );
}
