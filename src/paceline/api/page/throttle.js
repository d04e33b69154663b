// Throttling of work that is requested more often than it should run.

/**
 * Return a function that runs `work` soon: at most once per `everyMs`, never concurrently, and not while the page is
 * hidden. A request during a run causes one more run afterwards. `.atOnce()` skips the interval.
 */
export function throttled(work, everyMs) {
  let isRunning = false;
  let isWanted = false;
  let timer = 0;
  let startedAt = -Infinity;

  function request() {
    isWanted = true;
    if (isRunning || timer || document.hidden) return;
    timer = setTimeout(run, Math.max(0, startedAt + everyMs - performance.now()));
  }

  async function run() {
    [timer, isRunning, isWanted, startedAt] = [0, true, false, performance.now()];
    try {
      await work();
    } finally {
      isRunning = false;
      if (isWanted) request();
    }
  }

  request.atOnce = () => {
    clearTimeout(timer);
    [timer, startedAt] = [0, -Infinity];
    request();
  };
  document.addEventListener("visibilitychange", () => {
    if (isWanted && !document.hidden) request();
  });
  return request;
}
