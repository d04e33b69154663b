"""The output of one agent run, from bytes to signals, facts and an outcome. Pure: no clock, no I/O.

- `reader`: `StreamReader`, the way in
- `lines`, `screen`: bytes into lines, JSON objects and the paragraphs of a terminal
- `channels`: the readers of stdout and stderr, its turns and its last words
- `flood`: the tests that pass over lines at once, and the bound on what is read closely
- `record`: what events and notices mean, what is known of the run so far, its tokens, and the conclusion
"""
