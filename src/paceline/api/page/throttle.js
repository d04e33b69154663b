// Work that is asked for more often than it should be done.

/**
 * `ask()` has the work done soon: at most once in `everyMs`, never twice at once, not while nobody looks. Asked for
 * meanwhile, it is done once more afterwards. `ask.atOnce()` does not wait for its turn.
 */
export function paced(work, everyMs) {
  let isRunning = false;
  let isWanted = false;
  let timer = 0;
  let startedAt = -Infinity;

  function ask() {
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
      if (isWanted) ask();
    }
  }

  ask.atOnce = () => {
    clearTimeout(timer);
    [timer, startedAt] = [0, -Infinity];
    ask();
  };
  document.addEventListener("visibilitychange", () => {
    if (isWanted && !document.hidden) ask();
  });
  return ask;
}
