// The first start: a plan to copy, the accounts that are known, and the address for the SDKs. Shown until there is work.

import { actionButton, el, show } from "./dom.js";
import { runAction } from "./notices.js";
import { get } from "./requests.js";

const PLAN = `[campaign]
name = "first"
agent = "claude"
[[unit]]
id = "hello"
prompt = "Describe this folder"
`;
const KEY_ACCOUNT = `[accounts.my-key]
provider = "anthropic"  # or openai, google
kind = "metered"
key_env = "ANTHROPIC_API_KEY"
`;
const VARIABLES = {
  anthropic: ["ANTHROPIC_BASE_URL", ""],
  google: ["GOOGLE_GEMINI_BASE_URL", ""],
};
const OTHERS = ["OPENAI_BASE_URL", "/v1"];

export function makeFirstStart(root) {
  const accounts = el("ul", { class: "facts-list" });
  const clients = el("div", { class: "step-body" });
  root.append(
    el("h2", { id: "first-start-title", text: "Nothing has run here yet" }),
    el(
      "div",
      { class: "steps" },
      step(
        "Run agents",
        el("p", { text: "Save this as plan.toml and add it. It starts at once. Other agents: codex, gemini, opencode, command." }),
        sample("Copy the plan", PLAN),
        sample("Copy the command", "paceline add plan.toml"),
      ),
      step(
        "Send API calls through the gateway",
        clients,
      ),
      step(
        "Check the accounts",
        accounts,
        el("p", { text: "To check the logins and agent programs of this machine:" }),
        sample("Copy the command of the check", "paceline doctor"),
      ),
    ),
  );
  let hasAccounts = false;

  async function fetchAccounts() {
    if (hasAccounts) return;
    hasAccounts = true;
    let found;
    try {
      ({ accounts: found } = await get("/v1/accounts"));
    } catch {
      hasAccounts = false; // the next overview tries again
      return;
    }
    const named = found.map((each) => el("li", {}, el("b", { text: each.name }), ` ${each.provider}, ${each.kind}`));
    accounts.replaceChildren(
      ...(named.length ? named : [el("li", { text: "None in paceline.toml: each agent uses its own login." })]),
    );
    const metered = found.filter((each) => each.kind === "metered");
    clients.replaceChildren(...(metered.length ? metered.flatMap(clientLines) : accountLines()));
  }

  return {
    /** Show it while the home is used for nothing. */
    update(use) {
      show(root, use === "nothing");
      if (use === "nothing") fetchAccounts();
    },
  };
}

function step(title, ...children) {
  return el("div", { class: "first-step" }, el("h3", { text: title }), ...children);
}

/** The lines that point a client at an account that is paid by the token. */
function clientLines({ name, provider }) {
  const [variable, path] = VARIABLES[provider] ?? OTHERS;
  const line = `export ${variable}=${location.origin}/gateway/${name}${path}`;
  return [
    el("p", { text: `Point an SDK or a CLI at ${name}:` }),
    sample(`Copy the line for ${name}`, line),
    el("p", { text: "All lines that it needs, and a key for each team:" }),
    sample(`Copy the commands for ${name}`, `paceline gateway env ${name}\npaceline keys create search`),
  ];
}

function accountLines() {
  return [
    el("p", { text: "Add an account that is paid by the token to paceline.toml, and start Paceline again:" }),
    sample("Copy the account", KEY_ACCOUNT),
    el("p", { text: "Then print the lines for SDKs and CLIs:" }),
    sample("Copy the command for the lines", "paceline gateway env my-key"),
  ];
}

/** A text to copy, all of it in sight. */
function sample(label, text) {
  const copy = actionButton(
    { class: "button small", icon: "copy", isHarmless: true, "aria-label": label },
    "Copy",
    () => runAction(() => navigator.clipboard.writeText(text), "Copied."),
  );
  return el("div", { class: "sample" }, el("pre", { text: text.trimEnd() }), copy);
}
