"""Notifications and daily reports on their way to people."""
