// Requests to the server of this page, and to no other. An error response becomes an Error with the server's message.

import { changeHeaders } from "./change_key.js";

const READ_SECONDS = 10; // a page that gets no answer for so long is not live
const CHANGE_SECONDS = 30; // a change may wait for the store

export function get(path, signal) {
  return request(path, { headers: { accept: "application/json" } }, READ_SECONDS, signal);
}

export function send(method, path, body) {
  const options = { method, headers: { accept: "application/json", ...changeHeaders() } };
  if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  return request(path, options, CHANGE_SECONDS);
}

async function request(path, options, seconds, signal) {
  const timeout = AbortSignal.timeout(seconds * 1000);
  try {
    const both = signal ? AbortSignal.any([signal, timeout]) : timeout;
    return await parseResponse(await fetch(path, { ...options, signal: both }));
  } catch (error) {
    if (timeout.aborted) throw new Error(`The server did not answer within ${seconds} s.`);
    if (error instanceof TypeError) throw new Error("The server cannot be reached."); // fetch says only that it failed
    throw error;
  }
}

async function parseResponse(response) {
  const text = await response.text();
  let answer = null;
  try {
    answer = text ? JSON.parse(text) : null;
  } catch {
    answer = null;
  }
  if (response.ok) return answer;
  const message = answer?.detail || answer?.error || `the server answered ${response.status}`;
  throw Object.assign(new Error(String(message)), { status: response.status });
}
