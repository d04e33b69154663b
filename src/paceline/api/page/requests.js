// Requests to the server this page came from, and to no other. A refusal becomes an Error with the server's own words.

export async function get(path, signal) {
  return answerOf(await fetch(path, { headers: { accept: "application/json" }, signal }));
}

export async function send(method, path, body) {
  const options = { method, headers: { accept: "application/json" } };
  if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  return answerOf(await fetch(path, options));
}

async function answerOf(response) {
  const text = await response.text();
  let answer = null;
  try {
    answer = text ? JSON.parse(text) : null;
  } catch {
    answer = null;
  }
  if (response.ok) return answer;
  const words = answer?.detail || answer?.error || `the server answered ${response.status}`;
  throw Object.assign(new Error(String(words)), { status: response.status });
}
