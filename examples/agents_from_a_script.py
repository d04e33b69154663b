"""A plain script without an event loop: eight commands on threads, two at a time.

python examples/agents_from_a_script.py

Replace the command with any agent CLI.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from paceline import Limiter

limiter = Limiter(limits={"anthropic/max-1": 2})


def run_agent(number: int) -> str:
    with limiter.from_thread.slot("anthropic/max-1"):
        command = [sys.executable, "-c", f"print('agent {number} is done')"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    with ThreadPoolExecutor(max_workers=8) as pool:
        for line in pool.map(run_agent, range(1, 9)):
            print(line)


if __name__ == "__main__":
    main()
