// The live connection: one event stream, and one overview that is fetched anew when something happened.

import { get } from "./requests.js";
import { paced } from "./throttle.js";
import { learnServerTime } from "./format.js";

const REFETCH_MS = 500;
const RETRY_MS = 2000;
const IDLE_REFETCH_MS = 4000; // countdowns run out without an event
const FIRST_EVENTS = 200;

/**
 * Calls `onOverview(overview)`, `onEvent(event)`, `onConnection("live" | "reconnecting" | "refused")`, `onReopened()`
 * when the stream is there again after it was lost (what was missed may be anything), and `onOtherStore()` when the
 * server has begun another history since.
 */
export function follow({ onOverview, onEvent, onConnection, onReopened, onOtherStore }) {
  let stream = null;
  let lastId = null;
  let connection = null;
  let wasLost = false;
  const refetch = paced(fetchOverview, REFETCH_MS);

  function told(state) {
    if (state === connection) return;
    connection = state;
    onConnection(state);
  }

  function lost(state) {
    wasLost = true;
    told(state);
    setTimeout(refetch, RETRY_MS);
  }

  /** The server answers and tells what happens. */
  function found() {
    if (stream?.readyState !== EventSource.OPEN) return;
    told("live");
    if (wasLost) onReopened();
    wasLost = false;
  }

  async function fetchOverview() {
    let overview;
    try {
      overview = await get("/v1/overview");
    } catch (error) {
      lost(error.status === 401 || error.status === 403 ? "refused" : "reconnecting");
      return;
    }
    learnServerTime(overview.at);
    onOverview(overview);
    openStream(overview.last_event_id);
    found();
  }

  /** The browser comes back to a stream by itself, unless the server answered with an error. */
  function openStream(newest) {
    if (stream && stream.readyState !== EventSource.CLOSED) return;
    stream = new EventSource(`/v1/events?after=${lastId ?? Math.max(0, newest - FIRST_EVENTS)}`);
    stream.onopen = () => {
      found();
      refetch();
    };
    stream.onerror = () => lost("reconnecting");
    stream.onmessage = (message) => {
      const event = JSON.parse(message.data);
      lastId = event.id;
      onEvent(event);
      refetch();
    };
    stream.addEventListener("gap", (message) => {
      const { after, oldest } = JSON.parse(message.data);
      lastId = oldest - 1;
      if (oldest <= after) onOtherStore();
      onReopened();
    });
  }

  setInterval(refetch, IDLE_REFETCH_MS);
  refetch();
  return { refetch };
}
