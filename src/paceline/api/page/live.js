// The live connection: one event stream, and one overview that is fetched anew when something happened.

import { get } from "./net.js";
import { learnServerTime } from "./words.js";

const REFETCH_MS = 500;
const RETRY_MS = 2000;
const IDLE_REFETCH_MS = 4000;

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
  let isFetching = false;
  let isWanted = false;
  let fetchedAt = -Infinity;
  let timer = 0;

  function told(state) {
    if (state === connection) return;
    connection = state;
    onConnection(state);
  }

  /** At most two a second, never two at once, none while nobody looks. */
  function refetch() {
    isWanted = true;
    if (isFetching || timer || document.hidden) return;
    const wait = Math.max(0, fetchedAt + REFETCH_MS - performance.now());
    timer = setTimeout(fetchOverview, wait);
  }

  async function fetchOverview() {
    timer = 0;
    isFetching = true;
    isWanted = false;
    fetchedAt = performance.now();
    try {
      const overview = await get("/v1/overview");
      learnServerTime(overview.at);
      onOverview(overview);
      openStream(overview.last_event_id);
    } catch (error) {
      told(error.status === 401 || error.status === 403 ? "refused" : "reconnecting");
      wasLost = true;
      setTimeout(refetch, RETRY_MS);
    } finally {
      isFetching = false;
      if (isWanted) refetch();
    }
  }

  function openStream(newest) {
    if (stream && stream.readyState !== EventSource.CLOSED) return;
    const after = lastId ?? Math.max(0, newest - 200);
    stream = new EventSource(`/v1/events?after=${after}`);
    stream.onopen = () => {
      told("live");
      if (wasLost) onReopened();
      wasLost = false;
      refetch();
    };
    stream.onerror = () => {
      wasLost = true;
      told("reconnecting");
      setTimeout(refetch, RETRY_MS);
    };
    stream.addEventListener("gap", (message) => {
      const { after, oldest } = JSON.parse(message.data);
      lastId = oldest - 1;
      if (oldest <= after) onOtherStore();
      onReopened();
    });
    stream.onmessage = (message) => {
      const event = JSON.parse(message.data);
      lastId = event.id;
      onEvent(event);
      refetch();
    };
  }

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) refetch();
  });
  setInterval(refetch, IDLE_REFETCH_MS);
  refetch();
  return { refetch };
}
