// The event stream as a tab sees it: one for all tabs where the browser has shared workers, else one of its own.

/** `onOpen()`, `onLost()`, `onEvent(event)`, `onGap({after, oldest})`. It begins with `open(after)`. */
export function makeEventStream(listeners) {
  let state = "closed"; // closed | connecting | open
  const receive = {
    open() {
      state = "open";
      listeners.onOpen();
    },
    lost() {
      state = "connecting";
      listeners.onLost();
    },
    closed() {
      state = "closed";
      listeners.onLost();
    },
    event: (data) => listeners.onEvent(JSON.parse(data)),
    gap: (data) => listeners.onGap(JSON.parse(data)),
  };
  const source = window.SharedWorker ? sharedSource(receive) : ownSource(receive);
  addEventListener("pagehide", close);

  function close() {
    if (state !== "closed") source.close();
    state = "closed";
  }

  return {
    get isOpen() {
      return state === "open";
    },
    /** Open the stream unless it is open, or being opened. */
    open(after) {
      if (state !== "closed") return;
      state = "connecting";
      source.open(after);
    },
    close,
  };
}

function sharedSource(receive) {
  const { port } = new SharedWorker("/assets/stream_worker.js", "paceline-events");
  port.onmessage = ({ data: { kind, data } }) => receive[kind](data);
  return {
    open: (after) => port.postMessage({ ask: "open", after }),
    close: () => port.postMessage({ ask: "close" }),
  };
}

function ownSource(receive) {
  let source = null;
  return {
    open(after) {
      source = new EventSource(`/v1/events?after=${after}`);
      source.onopen = () => receive.open();
      source.onerror = () => (source.readyState === EventSource.CLOSED ? receive.closed() : receive.lost());
      source.onmessage = ({ data }) => receive.event(data);
      source.addEventListener("gap", ({ data }) => receive.gap(data));
    },
    close: () => source.close(),
  };
}
