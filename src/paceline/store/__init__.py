"""The store: what must survive a crash. One interface, one SQL, two databases.

interface               the verbs, and the values that they take and return
unit_result             what is known about the work of a unit
spend                   keys of clients, and what calls of the gateway have used
rules                   ids, keys, order, which values are refused, and between rows and values
schema                  the tables of both databases, and their history
sql_store               the verbs in SQL that both databases understand
plan_import             the import of a plan, step by step
dump                    everything as JSON lines, and back
sqlite                  the store in one SQLite file, and its connection: transactions, errors
postgres                the store in a PostgreSQL database, and changes by other processes
postgres_database       its connections: migration, transactions, the fence, errors
postgres_connection     one connection: no wait is without end, what SQLite spells differently, text and columns
"""

from paceline.core.values.session_output import Tokens as Tokens
from paceline.store.interface import Added as Added
from paceline.store.interface import Campaign as Campaign
from paceline.store.interface import CampaignState as CampaignState
from paceline.store.interface import Lease as Lease
from paceline.store.interface import OutcomeRecord as OutcomeRecord
from paceline.store.interface import Page as Page
from paceline.store.interface import Phase as Phase
from paceline.store.interface import ProcessId as ProcessId
from paceline.store.interface import StoppedUnits as StoppedUnits
from paceline.store.interface import Store as Store
from paceline.store.interface import StoredEvent as StoredEvent
from paceline.store.interface import StoredSlot as StoredSlot
from paceline.store.interface import Topic as Topic
from paceline.store.interface import Unit as Unit
from paceline.store.interface import UnitCounts as UnitCounts
from paceline.store.interface import UnitSpec as UnitSpec
from paceline.store.interface import UnitTotals as UnitTotals
from paceline.store.interface import WorkspaceSettings as WorkspaceSettings
from paceline.store.spend import Balances as Balances
from paceline.store.spend import BatchId as BatchId
from paceline.store.spend import ClientKey as ClientKey
from paceline.store.spend import HashedKey as HashedKey
from paceline.store.spend import KeyBudget as KeyBudget
from paceline.store.spend import SpendRow as SpendRow
from paceline.store.sqlite import SqliteStore as SqliteStore
from paceline.store.unit_result import CheckRound as CheckRound
from paceline.store.unit_result import Cost as Cost
from paceline.store.unit_result import UnitResult as UnitResult
