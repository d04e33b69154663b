// Requests to the server of this page, and to no other. An error response becomes an Error with the server's message.

import { changeHeaders } from "./change_key.js";

export async function get(path, signal) {
  return parseResponse(await fetch(path, { headers: { accept: "application/json" }, signal }));
}

export async function send(method, path, body) {
  const options = { method, headers: { accept: "application/json", ...changeHeaders() } };
  if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  return parseResponse(await fetch(path, options));
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
