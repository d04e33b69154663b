"""The read model: frozen values for people, built from one reading of the store and the Governor.

    fleet        what every view is built from, read at one moment
    status       the engine, the pool and the totals
    capacity     one row for each scope: in flight, limits, where they come from
    quota        the windows of scopes, and the sentence about a spent quota
    campaigns    a campaign and its progress
    units        a unit, its phase, its details, and pages of units
    why          what a unit waits for
    throughput   units done in the last hour, and when the rest will be done
    timeline     the last day: sessions, marks, and in-flight against the limit
    sessions     live sessions
    accounts     the accounts of the settings, without their secrets
    safe_text    text of agents and files without control characters

The API, the command line and `top` serialise or print these values. Never here: changing anything, HTTP, terminals.
"""
