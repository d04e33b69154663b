"""Where providers report their usage: the address and the key, as paceline.toml has them at the time of each poll."""

import logging
import os
from collections.abc import Mapping

from paceline.core.signals import Usage
from paceline.errors import InvalidSettings
from paceline.limiter.usage_polls import UsageSource
from paceline.limiter.usage_requests import usage_at
from paceline.settings import Settings, load_settings

log = logging.getLogger("paceline.usage")


class CurrentSettings:
    """The settings as their file has them now. A file that cannot be read changes nothing."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._environ = environ
        self._read = self._version()

    def read(self) -> Settings:
        """Return the settings, read again if the file has changed."""
        file, version = self._settings.file, self._version()
        if file is not None and version is not None and version != self._read:
            self._read = version
            try:
                self._settings = load_settings(file.parent, {**self._environ, "PACELINE_CONFIG": str(file)})
            except InvalidSettings as problem:
                log.warning("%s has changed and cannot be read; usage is polled as before: %s", file, problem)
        return self._settings

    def _version(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._settings.file) if self._settings.file is not None else None
        except OSError:
            return None
        return None if found is None else (found.st_mtime_ns, found.st_size)


def usage_sources(settings: Settings, environ: Mapping[str, str]) -> dict[str, UsageSource]:
    """Return the providers that report their usage."""
    current = CurrentSettings(settings, environ)
    names = [name for name, provider in settings.providers.items() if provider.usage_url is not None]
    return {name: _source(name, current, environ) for name in names}


def _source(name: str, current: CurrentSettings, environ: Mapping[str, str]) -> UsageSource:
    async def usage() -> Usage | None:
        settings = current.read()
        provider = settings.providers.get(name)
        if provider is None or provider.usage_url is None:
            return None
        return await usage_at(provider.usage_url, _key(settings, name, environ))()

    return usage


def _key(settings: Settings, provider: str, environ: Mapping[str, str]) -> str | None:
    """Return the key of the provider's first account that has one."""
    named = [account.key_env for account in settings.accounts.values() if account.provider == provider]
    return next((environ[variable] for variable in named if variable is not None and variable in environ), None)
