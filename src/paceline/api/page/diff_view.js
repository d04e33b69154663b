// The change of one unit as a patch: read when it is opened, cut where it is too long, and coloured by the kind of line.

import { el, setText, show } from "./dom.js";
import { count } from "./format.js";
import { get } from "./requests.js";

const MOST_BYTES = 400_000; // some thousand lines: more than anybody reads here, and quick to draw
const MOST_LINES = 5_000;

/** Make the view. `node` goes into the panel; `open(path, unit)` shows the change of a unit, `close()` forgets it. */
export function makeDiffView() {
  const note = el("p", { class: "note" });
  const patch = el("pre", { class: "diff", tabindex: "0" });
  const node = el("div", { class: "diff-pane" }, note, patch);
  let shown = "";

  async function open(path, unit) {
    const wanted = [path, unit.attempt, unit.state, unit.phase, unit.commit].join(" ");
    if (wanted === shown) return;
    shown = wanted;
    if (unit.workspace === null) {
      draw(unit.attempt === null ? "Not started yet." : "It has no workspace: it worked in its folder itself.", []);
      return;
    }
    if (!patch.firstChild) draw("Loading…", []);
    try {
      const change = await get(`${path}/diff?most_bytes=${MOST_BYTES}`);
      if (wanted === shown) drawChange(change);
    } catch (error) {
      if (wanted !== shown) return;
      shown = ""; // the next draw tries again
      draw(error.message, []);
    }
  }

  function drawChange({ unit, patch: text, truncated }) {
    const lines = text.split("\n");
    if (lines.at(-1) === "") lines.pop();
    const isCut = truncated || lines.length > MOST_LINES;
    const kept = lines.slice(0, MOST_LINES);
    const whole = `Only the first ${count(kept.length)} lines are shown; paceline diff ${unit} prints everything.`;
    draw(kept.length === 0 ? "It changed nothing." : isCut ? whole : "", blocksOf(kept));
  }

  function draw(message, blocks) {
    setText(note, message);
    show(note, message !== "");
    show(patch, blocks.length > 0);
    patch.replaceChildren(...blocks.map(({ kind, lines }) => el("span", { class: kind, text: lines.join("\n") })));
  }

  function close() {
    shown = "";
    draw("", []);
  }

  return { node, open, close };
}

/** Return the lines in runs of one kind, so that a long patch needs few elements. */
function blocksOf(lines) {
  const blocks = [];
  let isInHunk = false;
  for (const line of lines) {
    if (line.startsWith("diff --git ")) isInHunk = false;
    else if (line.startsWith("@@ ")) isInHunk = true;
    if (!isInHunk && line.startsWith("index ")) continue; // names of objects, for git alone
    const kind = kindOf(line, isInHunk);
    if (blocks.at(-1)?.kind === kind) blocks.at(-1).lines.push(line);
    else blocks.push({ kind, lines: [line] });
  }
  return blocks;
}

/** Inside a hunk the first character decides: a removed line may begin with more dashes, as the head of a file does. */
function kindOf(line, isInHunk) {
  if (!isInHunk) return "file";
  if (line.startsWith("@@ ")) return "hunk";
  return { "+": "added", "-": "removed" }[line[0]] ?? "same";
}
