// The value that this page sends with every change. The printed address hands it over after `#`, where no server reads
// it. A cookie goes to every port of this machine; this value stays with the page's own address and its own tab.

const NAME = "csrf";
const HEADER = "x-paceline-csrf";

function takeFromAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const key = given.get(NAME);
  if (!key) return;
  sessionStorage.setItem(NAME, key);
  given.delete(NAME);
  const rest = given.toString();
  history.replaceState(null, "", rest ? `#${rest}` : location.pathname);
}

takeFromAddress();

/** Return the headers that allow a change; none in a tab that was not opened with the printed address. */
export function changeHeaders() {
  const key = sessionStorage.getItem(NAME);
  return key ? { [HEADER]: key } : {};
}
