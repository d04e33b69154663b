// The live connection: the event stream, and one overview that is fetched again after every event.

import { makeEventStream } from "./event_stream.js";
import { syncClock } from "./format.js";
import { get } from "./requests.js";
import { throttled } from "./throttle.js";

const REFETCH_MS = 500;
const RETRY_MS = 2000;
const IDLE_REFETCH_MS = 4000; // no event is emitted when a countdown ends
const FIRST_EVENTS = 200;

/**
 * Connect to the server and keep calling `onOverview(overview)`, `onEvent(event, isNews)` and
 * `onConnection("live" | "reconnecting" | "refused")`. Call `onReopened()` when a lost stream is back, because any number
 * of events may be missing, and `onOtherStore()` when the server has a new store since. While the page is hidden, the
 * stream is closed.
 */
export function connect({ onOverview, onEvent, onConnection, onReopened, onOtherStore }) {
  let lastId = null;
  let newestInOverview = 0;
  let connection = null;
  let wasLost = false;
  const refetch = throttled(fetchOverview, REFETCH_MS);
  const stream = makeEventStream({
    onOpen: onFound,
    onLost: () => onLost("reconnecting"),
    onEvent(event) {
      lastId = event.id;
      const isNews = event.id > newestInOverview;
      onEvent(event, isNews);
      if (isNews) refetch();
    },
    onGap({ after, oldest }) {
      lastId = oldest - 1;
      if (oldest <= after) onOtherStore();
      onReopened();
    },
  });

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
    if (!stream.isOpen) return;
    setState("live");
    if (wasLost) {
      onReopened();
      refetch();
    }
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
    newestInOverview = overview.last_event_id;
    onOverview(overview);
    if (!document.hidden) stream.open(lastId ?? Math.max(0, newestInOverview - FIRST_EVENTS));
    onFound();
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      stream.close();
      wasLost = true;
    } else {
      refetch();
    }
  });
  setInterval(refetch, IDLE_REFETCH_MS);
  refetch();
  return { refetch };
}
