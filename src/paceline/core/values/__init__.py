"""Values of the core, and their validation. Nothing here changes or decides.

- `scopes`: names of scopes and models; `tickets`: a request to enter, and its answers and effects
- `settings`: what is configured; `status`: what a scope shows; `validation`: checks of what callers give
- `session_output`: what a session uses, and where it prints; `fields`: structs with fields or times in common
"""
