"""The read model: frozen values for people, built from one reading of the store and the Governor.

    capacity         what every view is built from, read at one moment; one row for each scope, its quota windows;
                     accounts and keys of clients, without their secrets, with what they have spent
    status           the engine, the pool and the totals; a campaign and its progress; other machines
    units            a unit, its row in results, its details and events, pages of units, and live sessions
    campaign_report  the report on a campaign
    unit_changes     what units changed, and the conflicts between their branches
    why              what a unit waits for, and what waits for a person
    timeline         the last day: sessions, marks, and in-flight against the limit
    gateway_calls    calls of the gateway, and what they cost
    transcript       what an agent said and did, as text
    safe_text        text of agents and files without control characters

The API, the command line and `top` serialise or print these values. Never here: changing anything, HTTP, terminals.
"""
