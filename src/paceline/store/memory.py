"""The store in memory: for tests, for simulations, and as the model that other stores are compared with.

Nothing survives the process.
"""

from paceline.store.memory_client_keys import MemoryClientKeys
from paceline.store.memory_control import MemoryCampaigns, MemoryUnitControl
from paceline.store.memory_records import MemoryEngineState, MemoryEvents, MemorySlots, MemorySpend
from paceline.store.memory_undo import UndoLog
from paceline.store.memory_units import MemoryUnits, UnitTable
from paceline.store.table_store import Tables, TableStore


class MemoryStore(TableStore):
    """`Store` in memory."""

    def __init__(self) -> None:
        undo = UndoLog()
        table = UnitTable(undo)
        events = MemoryEvents(undo)
        tables = Tables(
            campaigns=MemoryCampaigns(table, events),
            units=MemoryUnits(table),
            control=MemoryUnitControl(table),
            events=events,
            slots=MemorySlots(undo),
            spend=MemorySpend(undo),
            state=MemoryEngineState(undo),
            client_keys=MemoryClientKeys(undo),
        )
        super().__init__(undo, tables)
