// The live connection: one event stream, and one overview that is fetched again after every event.

import { syncClock } from "./format.js";
import { get } from "./requests.js";
import { throttled } from "./throttle.js";

const REFETCH_MS = 500;
const RETRY_MS = 2000;
const IDLE_REFETCH_MS = 4000; // no event is emitted when a countdown ends
const FIRST_EVENTS = 200;

/**
 * Connect to the server and keep calling `onOverview(overview)`, `onEvent(event)` and
 * `onConnection("live" | "reconnecting" | "refused")`. Call `onReopened()` when a lost stream is back, because any number
 * of events may be missing, and `onOtherStore()` when the server has a new store since.
 */
export function connect({ onOverview, onEvent, onConnection, onReopened, onOtherStore }) {
  let stream = null;
  let lastId = null;
  let connection = null;
  let wasLost = false;
  const refetch = throttled(fetchOverview, REFETCH_MS);

  function setState(state) {
    if (state === connection) return;
    connection = state;
    onConnection(state);
  }

  function onLost(state) {
    wasLost = true;
    setState(state);
    setTimeout(refetch, RETRY_MS);
  }

  /** Report "live" once the overview was answered and the stream is open. */
  function onFound() {
    if (stream?.readyState !== EventSource.OPEN) return;
    setState("live");
    if (wasLost) onReopened();
    wasLost = false;
  }

  async function fetchOverview() {
    let overview;
    try {
      overview = await get("/v1/overview");
    } catch (error) {
      onLost(error.status === 401 || error.status === 403 ? "refused" : "reconnecting");
      return;
    }
    syncClock(overview.at);
    onOverview(overview);
    openStream(overview.last_event_id);
    onFound();
  }

  /** Open the stream unless it is open. The browser reconnects by itself, except after an error response. */
  function openStream(newest) {
    if (stream && stream.readyState !== EventSource.CLOSED) return;
    stream = new EventSource(`/v1/events?after=${lastId ?? Math.max(0, newest - FIRST_EVENTS)}`);
    stream.onopen = () => {
      onFound();
      refetch();
    };
    stream.onerror = () => onLost("reconnecting");
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
