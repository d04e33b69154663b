// A transcript in a text field: each line begins with what it is (said, tool, result, error, notice), which is coloured.
// The text itself stays as it is, so that a selection and a copy have every character.

import { el, setText } from "./dom.js";

const LABELS = /^(said|tool|result|error|notice) {2,}/;

/** Show a transcript, or another text as it is. Nothing is touched if it is shown already: a selection stays. */
export function drawTranscript(node, text, isTranscript) {
  const lines = isTranscript ? (text.match(/[^\n]*\n|[^\n]+$/g) ?? []) : [];
  const isLabelled = lines.some((line) => LABELS.test(line));
  node.classList.toggle("labelled", isLabelled);
  if (!isLabelled) {
    setText(node, text);
    return;
  }
  if (node.drawnText === text && node.childElementCount > 0) return;
  node.drawnText = text;
  node.replaceChildren(...lines.map(lineNode));
}

function lineNode(line) {
  const label = LABELS.exec(line)?.[1];
  return label
    ? el("span", { class: "line-of" }, el("b", { class: `of-${label}`, text: label }), line.slice(label.length))
    : el("span", { class: "line-of", text: line });
}
