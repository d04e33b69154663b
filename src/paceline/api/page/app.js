// The page: creates the sections and feeds them from one connection.

import { makeAddress } from "./address.js";
import { makeCalls } from "./calls.js";
import { makeCampaigns } from "./campaigns.js";
import { makeCapacity } from "./capacity.js";
import { connect } from "./connection.js";
import { setText, show } from "./dom.js";
import { makeStrip } from "./engine_strip.js";
import { makeEvents } from "./events.js";
import { makeFirstStart } from "./first_start.js";
import { makeHosts } from "./hosts.js";
import { makeKeys } from "./keys.js";
import { arrange, useOf } from "./layout.js";
import { makeNeeds } from "./needs.js";
import { announce } from "./notices.js";
import { isReadOnly, setConnected } from "./permissions.js";
import { makeTabTitle } from "./tab_title.js";
import { makeTimeline } from "./timeline.js";
import { makeUnitPanel } from "./unit_panel.js";
import { makeUnits } from "./units.js";

const CONNECTIONS = { live: "live", reconnecting: "reconnecting", refused: "not signed in", connecting: "connecting" };
const REFUSED =
  "This browser is no longer signed in. Open the address that paceline up printed; " +
  "paceline token --url prints it again.";
const UNREACHABLE =
  "The server does not answer. You see its last known state; the page updates again when the server is back.";
const STALE_AFTER_MS = 1200; // a short interruption is not worth a notice

const byId = (id) => document.getElementById(id);
const address = makeAddress();
const panel = makeUnitPanel(byId("unit"), { address, refetch: () => live.refetch() });
const openUnit = (id) => panel.open(id);
const refetch = () => live.refetch();

const strip = makeStrip(byId("engine"), refetch);
const units = makeUnits(byId("units"), { address, openUnit });
const campaigns = makeCampaigns(byId("campaigns"), { refetch, showUnits: units.show });
const capacity = makeCapacity(byId("capacity"), { refetch });
const hosts = makeHosts(byId("hosts"));
const timeline = makeTimeline(byId("timeline"), { openUnit, state: address });
const calls = makeCalls(byId("calls"), () => live.refetch());
const firstStart = makeFirstStart(byId("first-start"));
const needs = makeNeeds(byId("needs"), { refetch, showUnits: units.show });
const tabTitle = makeTabTitle();
const events = makeEvents(byId("events"), openUnit);

makeKeys(byId("keys"), { searchUnits: units.search, goToUnits: units.focus, goToCampaigns: campaigns.focus });
show(byId("read-only"), isReadOnly());

let staleTimer = 0;
const live = connect({
  onOverview(overview) {
    calls.update(overview);
    const use = useOf(overview, calls.isUsed);
    arrange(use);
    firstStart.update(use);
    for (const section of [needs, strip, campaigns, capacity, hosts, units, tabTitle]) section.update(overview);
    document.body.dataset.at = String(overview.at);
  },
  onEvent(event, isNews) {
    events.add(event);
    if (!isNews) return; // the sections were fetched after it
    timeline.refetch();
    if (event.unit) units.refresh();
    if (event.unit === panel.id) panel.refetch();
  },
  onConnection(state) {
    document.body.dataset.connection = state;
    setConnected(state === "live" || state === "connecting");
    setText(byId("connection").lastElementChild, CONNECTIONS[state]);
    setText(byId("stale").lastElementChild, state === "refused" ? REFUSED : UNREACHABLE);
    clearTimeout(staleTimer);
    if (state === "live") show(byId("stale"), false);
    else {
      staleTimer = setTimeout(() => {
        show(byId("stale"), true);
        tabTitle.onLost();
      }, STALE_AFTER_MS);
    }
  },
  onOtherStore: events.clear,
  onReopened() {
    announce("Reconnected.");
    timeline.refetch();
    units.refresh();
    panel.refetch();
  },
});

setInterval(() => {
  for (const section of [strip, capacity, hosts, timeline, units, panel]) section.tick();
}, 1000);
setInterval(timeline.refetch, 15000);
timeline.refetch();
address.onChange((names) => {
  if (["campaign", "state", "search", "order"].some((name) => names.includes(name))) units.restart();
  panel.open(address.get("unit"));
});
panel.open(address.get("unit"));
