"""Slots of the daemon for Python programs: `Client`, with the face of the Limiter."""

from paceline.client.daemon_client import Client as Client
from paceline.client.slot import ClientSlot as ClientSlot
