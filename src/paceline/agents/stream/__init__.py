"""The output of one agent run, from bytes to signals, facts and an outcome. Pure: no clock, no I/O.

- `reader`: `StreamReader`, the way in
- `lines`, `screen`: bytes into lines, JSON objects and the paragraphs of a terminal
- `channels`: the readers of stdout and stderr
- `notices`: the CLI's own notices between prose and stack traces
- `flood`: the tests that pass over lines at once, and the bound on what is read closely
- `facts`: what an event states beside limits
- `record`: what events and notices mean, and what is known of the run so far
- `work`: its tokens, turns and last words
- `outcome`: the conclusion when it has ended
"""
