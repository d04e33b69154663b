"""What must survive: one interface (`interface.py`), several implementations."""
