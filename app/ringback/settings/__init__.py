"""Settings, read once from RINGBACK_* variables and checked. Bootstrap, CLI, keyring, server, service_database import them.

fields   `Settings`: each setting with its default and its description, which `.env.example` repeats; a test keeps the two equal
values   their types: how a variable is read, and which values are refused
loading  reads the settings of a process, and names the variable of an invalid one
"""

from ringback.settings.fields import Settings
from ringback.settings.loading import SettingsError, find_misspelt_variables, load_settings
from ringback.settings.values import is_wildcard_address

__all__ = ["Settings", "SettingsError", "find_misspelt_variables", "is_wildcard_address", "load_settings"]
