"""Finding a stored campaign by the name that a person gave."""

from paceline.config_files.documents import did_you_mean
from paceline.errors import UnknownName
from paceline.store import Campaign, Store

MOST_LISTED = 20
"""Names in the error message: enough to recognise the right one, few enough to read."""


def find_campaign(store: Store, name: str) -> Campaign:
    """Return the campaign of this name. Raises `UnknownName` with a suggestion, or the list of campaigns."""
    campaigns = {campaign.name: campaign for campaign in store.campaigns()}
    if name in campaigns:
        return campaigns[name]
    hint = did_you_mean(name, campaigns) or _listed(list(campaigns))
    raise UnknownName(f"there is no campaign {name!r:.80}{hint}")


def _listed(names: list[str]) -> str:
    if not names:
        return "; there are none yet: paceline run PLAN adds one"
    return f"; there are: {', '.join(names[:MOST_LISTED])}"
