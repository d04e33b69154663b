"""The store: what must survive a crash. One interface (`interface.py`), several implementations."""

from paceline.core.values.tokens import Tokens as Tokens
from paceline.store.client_keys import ClientKey as ClientKey
from paceline.store.client_keys import HashedKey as HashedKey
from paceline.store.client_keys import KeyBudget as KeyBudget
from paceline.store.interface import Added as Added
from paceline.store.interface import Campaign as Campaign
from paceline.store.interface import Lease as Lease
from paceline.store.interface import OutcomeRecord as OutcomeRecord
from paceline.store.interface import Page as Page
from paceline.store.interface import Phase as Phase
from paceline.store.interface import ProcessId as ProcessId
from paceline.store.interface import Store as Store
from paceline.store.interface import StoredEvent as StoredEvent
from paceline.store.interface import StoredSlot as StoredSlot
from paceline.store.interface import Topic as Topic
from paceline.store.interface import Unit as Unit
from paceline.store.interface import UnitCounts as UnitCounts
from paceline.store.interface import UnitSpec as UnitSpec
from paceline.store.interface import WorkspaceSettings as WorkspaceSettings
from paceline.store.memory import MemoryStore as MemoryStore
from paceline.store.spend import SpendRow as SpendRow
from paceline.store.sqlite import SqliteStore as SqliteStore
from paceline.store.stopped_units import StoppedUnits as StoppedUnits
from paceline.store.unit_result import CheckRound as CheckRound
from paceline.store.unit_result import Cost as Cost
from paceline.store.unit_result import UnitResult as UnitResult
