// The first start: a plan to copy, the accounts that are known, and the address for the SDKs. Shown until there is work.

import { actionButton, el, show } from "./dom.js";
import { toast } from "./notices.js";
import { get } from "./requests.js";

const PLAN = `[campaign]
name = "first"
agent = "claude"            # or codex, gemini, opencode, command ...
[[unit]]
id = "hello"
prompt = "Write one line about this folder to HELLO.md"
`;
const VARIABLES = {
  anthropic: ["ANTHROPIC_BASE_URL", ""],
  google: ["GOOGLE_GEMINI_BASE_URL", ""],
};
const OTHERS = ["OPENAI_BASE_URL", "/v1"];

export function makeFirstStart(root) {
  const accounts = el("ul");
  const clients = el("ul");
  root.append(
    el("h2", { id: "first-start-title", text: "Nothing has run here yet" }),
    el(
      "div",
      { class: "steps" },
      el(
        "div",
        {},
        el("h3", { text: "Run agents" }),
        el("p", { text: "Save this as plan.toml and add it. It starts at once." }),
        el("pre", { class: "sample", tabindex: "0", text: PLAN }),
        copyButton("Copy the plan", PLAN),
        el("code", { text: "paceline add plan.toml" }),
      ),
      el(
        "div",
        {},
        el("h3", { text: "Accounts" }),
        accounts,
        el("p", { text: "To check the logins and agent programs of this machine:" }),
        el("code", { text: "paceline doctor" }),
      ),
      el("div", {}, el("h3", { text: "API calls through the gateway" }), clients),
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
    const named = found.map((each) => el("li", { text: `${each.name}: ${each.provider}, ${each.kind}` }));
    accounts.replaceChildren(
      ...(named.length ? named : [el("li", { text: "none in paceline.toml: each agent uses its own login" })]),
    );
    const metered = found.filter((each) => each.kind === "metered");
    clients.replaceChildren(
      ...(metered.length
        ? metered.map(clientItem)
        : [
            el("li", {
              text: "Add an account with kind = 'metered' and key_env to paceline.toml to send API calls through this address.",
            }),
          ]),
    );
  }

  return {
    update({ campaigns, gateway }) {
      const isUsed = campaigns.length > 0 || (gateway?.requests_today ?? 0) > 0;
      show(root, !isUsed);
      if (!isUsed) fetchAccounts();
    },
  };
}

function clientItem({ name, provider }) {
  const [variable, path] = VARIABLES[provider] ?? OTHERS;
  const line = `export ${variable}=${location.origin}/gateway/${name}${path}`;
  return el(
    "li",
    {},
    el("code", { text: line }),
    copyButton(`Copy the line for ${name}`, line),
    el("code", { text: `paceline gateway env ${name}` }),
  );
}

function copyButton(label, text) {
  return actionButton(
    { class: "button small", icon: "check", isHarmless: true, "aria-label": label },
    "Copy",
    async () => {
      await navigator.clipboard.writeText(text);
      toast("Copied.");
    },
  );
}
