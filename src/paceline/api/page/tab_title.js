// The title and the icon of the tab: how many things need a person, else how many sessions run.

import { count } from "./format.js";

const BADGE = { size: 64, radius: 20 };

export function makeTabTitle() {
  const link = document.querySelector("link[rel='icon']");
  const plain = link.href;
  const image = new Image();
  image.src = plain;
  let drawn = 0;

  function drawBadge(needs) {
    if (needs === drawn || (needs && !image.complete)) return;
    drawn = needs;
    if (!needs) {
      link.href = plain;
      return;
    }
    const canvas = Object.assign(document.createElement("canvas"), { width: BADGE.size, height: BADGE.size });
    const pen = canvas.getContext("2d");
    pen.drawImage(image, 0, 0, BADGE.size, BADGE.size);
    const at = BADGE.size - BADGE.radius;
    pen.fillStyle = "#c62828";
    pen.beginPath();
    pen.arc(at, at, BADGE.radius, 0, 2 * Math.PI);
    pen.fill();
    pen.fillStyle = "#fff";
    pen.font = "bold 30px sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(needs > 9 ? "9+" : String(needs), at, at + 2);
    link.href = canvas.toDataURL("image/png");
  }

  return {
    update({ needs, status }) {
      const what = status.engine.state === "paused" ? "paused" : `${count(status.pool.running)} running`;
      document.title = `${needs.length ? `(${count(needs.length)}) ` : ""}${what} · Paceline`;
      drawBadge(needs.length);
    },
    /** Nothing is known now: an old number would be taken for the present one. */
    onLost() {
      document.title = "not connected · Paceline";
    },
  };
}
