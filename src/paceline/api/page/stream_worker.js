// The one event stream of this browser, shared by all tabs of the page. A browser opens at most six connections to a
// server: with a stream for each tab, six tabs would leave none for their requests.
//
// A tab sends `{ask: "open", after}` or `{ask: "close"}`. It receives `{kind: "open" | "lost" | "closed"}`, and
// `{kind: "event" | "gap", data}` with the text that the server sent.

const KEPT = 400; // events for tabs that join later; twice what a new tab asks for
const readers = new Set();
let source = null;
let kept = []; // {id, data}, oldest first

function tell(message) {
  for (const port of readers) port.postMessage(message);
}

function openSource(after) {
  source = new EventSource(`/v1/events?after=${after}`);
  kept = [];
  source.onopen = () => tell({ kind: "open" });
  source.onerror = () => {
    const isOver = source.readyState === EventSource.CLOSED; // else the browser connects again by itself
    if (isOver) source = null;
    tell({ kind: isOver ? "closed" : "lost" });
  };
  source.onmessage = ({ data, lastEventId }) => {
    kept.push({ id: Number(lastEventId), data });
    if (kept.length > KEPT) kept.shift();
    tell({ kind: "event", data });
  };
  source.addEventListener("gap", ({ data }) => {
    kept = [];
    tell({ kind: "gap", data });
  });
}

function join(port, after) {
  readers.add(port);
  if (source === null) return openSource(after);
  if (source.readyState !== EventSource.OPEN) return undefined; // it is told when the stream opens
  port.postMessage({ kind: "open" });
  const oldest = kept.length ? kept[0].id : after + 1;
  if (oldest > after + 1) port.postMessage({ kind: "gap", data: JSON.stringify({ after, oldest }) });
  for (const { id, data } of kept) if (id > after) port.postMessage({ kind: "event", data });
  return undefined;
}

function leave(port) {
  readers.delete(port);
  if (readers.size > 0 || source === null) return;
  source.close();
  source = null;
}

self.onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data: { ask, after } }) => (ask === "open" ? join(port, after) : leave(port));
};
