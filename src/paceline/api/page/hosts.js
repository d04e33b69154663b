// One row per host: whether its worker is there, what it runs, and what it has. Without hosts the section is not shown.

import { el, icon, partsOf, setAttribute, setIcon, setText, show, syncChildren } from "./dom.js";
import { ago, bytes, clockTime, count, fullTime, NOTHING, plural, until } from "./format.js";
import { announce } from "./notices.js";

const PRESENCES = {
  joined: ["check", "joined", "Its worker is connected."],
  silent: ["clock", "silent", "Its worker does not answer. Its sessions may run, and nothing new starts there."],
  lost: ["warning", "lost", "It was silent for so long that its sessions have ended. Their units are given back."],
  leaving: ["paused", "leaving", "Its worker ends, or its allocation does. Nothing new starts there."],
  absent: ["waiting", "absent", "No worker of it has joined."],
};

export function makeHosts(root) {
  const list = el("ul", { class: "hosts" });
  const heading = el(
    "div",
    { class: "host-head", "aria-hidden": "true" },
    ...["Host", "Worker", "Sessions", "Free memory", "Heard"].map((text) => el("span", { text })),
  );
  root.querySelector(".body").append(heading, list);
  const aside = document.getElementById("hosts-aside");

  return {
    update({ hosts }) {
      show(root, hosts.length > 0);
      const joined = hosts.filter((each) => each.presence === "joined").length;
      const all = plural(hosts.length, "host");
      setText(aside, joined === hosts.length ? all : `${count(joined)} of ${all} joined`);
      syncChildren(
        list,
        hosts,
        (each) => each.name,
        (each) => hostRow(each),
      );
    },
    tick() {
      for (const part of partsOf(list)) part.tick();
    },
  };
}

function hostRow({ name }) {
  let last = null;
  const badge = el("span", { class: "badge" }, icon("waiting"), el("span"));
  const labels = el("span", { class: "labels muted" });
  const sessions = el("b", { data: { figure: "sessions" } });
  const memory = el("span", { data: { figure: "free_memory" } });
  const heard = el("span", { class: "muted", data: { figure: "heard" } });
  const has = el("p", { class: "host-has muted" });
  const leaves = el("p", { class: "line" }, icon("clock"), el("span"));
  const logins = el("p", { class: "line" }, icon("warning"), el("span"));
  const problem = el("div", { class: "banner reduced" }, icon("warning"), el("span"));
  const node = el(
    "li",
    { class: "host", data: { host: name } },
    el(
      "div",
      { class: "host-row" },
      el("div", { class: "host-name" }, el("span", { text: name, title: name }), labels),
      el("div", { class: "cell" }, badge),
      el("div", { class: "cell", "data-label": "Sessions" }, sessions),
      el("div", { class: "cell", "data-label": "Free memory" }, memory),
      el("div", { class: "cell", "data-label": "Heard" }, heard),
    ),
    has,
    leaves,
    logins,
    problem,
  );

  function update(host) {
    if (last && last.presence !== host.presence) announce(`Host ${name} is ${host.presence}.`);
    last = host;
    const [symbol, word, meaning] = PRESENCES[host.presence];
    setIcon(badge.firstChild, symbol);
    setText(badge.lastChild, word);
    setAttribute(badge, "data-state", host.presence);
    setAttribute(badge, "title", meaning);
    setText(labels, host.labels.join(", "));
    setText(sessions, count(host.sessions) + (host.max_sessions === null ? "" : `/${count(host.max_sessions)}`));
    const size = host.memory === null ? "" : ` of ${bytes(host.memory)}`;
    setText(memory, host.free_memory === null ? NOTHING : bytes(host.free_memory) + size);
    setAttribute(heard, "title", host.heard_at === null ? null : fullTime(host.heard_at));
    const machine = host.hostname === name ? null : host.hostname;
    const programs = host.clis.map((each) => `${each.agent} ${each.version}`);
    setText(has, [machine, plural(host.logins, "login"), ...programs].filter(Boolean).join(" · "));
    show(has, host.hostname !== null);
    setText(logins.lastChild, host.login_problems.join("; "));
    show(logins, host.login_problems.length > 0);
    setText(problem.lastChild, host.problem ?? "");
    show(problem, Boolean(host.problem));
    tick();
  }

  function tick() {
    if (!last) return;
    setText(heard, last.heard_at === null ? NOTHING : ago(last.heard_at));
    show(leaves, last.leaves_at !== null);
    if (last.leaves_at === null) return;
    setText(leaves.lastChild, `its allocation ends ${clockTime(last.leaves_at)}, ${until(last.leaves_at)}`);
  }

  return { node, update, tick };
}
